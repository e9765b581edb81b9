/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/connections/unheard.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "link/door.h"
#include "rdmacm/connections/id.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/agent.h"

/* Most requests are answered before anybody probes. */
#define FIRST_NS (250 * SW_NS_PER_MS)
/* By then the request has been said again (RESEND_NS in service.c). */
#define COPIES_MIN 2
/* A round trip is not known, and may be as long as these together. */
#define LOOK_FIRST_NS (5 * SW_NS_PER_MS)
#define LOOK_LAST_NS (320 * SW_NS_PER_MS)
/* A kernel says only so often to one host that a port is closed. */
#define PAUSE_FIRST_NS SW_NS_PER_S
#define PAUSE_MAX_NS (8 * SW_NS_PER_S)
#define ANSWERS_MAX 256u /* in one turn: the agent has room for 2048, others' included */

/* All requests between two addresses share one, and its socket is closed between the probes: a
 * peer may keep hundreds of requests waiting. */
struct host_door {
    struct host_door *next;
    struct sw_door door;
    uint32_t users;
    uint64_t due_ns, look_ns, pause_ns;
    bool is_shut; /* its requests are being refused */
};

struct unheard {
    struct unheard *next;
    struct sw_ucm_id *id;
    struct host_door *host;
    uint64_t ready_ns; /* to be probed for */
    uint16_t vain;     /* copies that were out at the last probe */
};

static struct unheard *unheard_all;
static struct host_door *doors;

static bool is_unheard(const struct sw_ucm_id *id)
{
    return (id->cm.state == SW_CM_REQ_SENT || id->cm.state == SW_CM_SIDR_REQ_SENT) &&
           !id->cm.is_heard && !id->cm.destroyed;
}

/* ---- doors ---- */

static bool leads_to(const struct sw_door *door, const struct sw_cm_path *path)
{
    return door->ifindex == path->ifindex &&
           !memcmp(door->source.raw, path->local_gid, sizeof(door->source.raw)) &&
           !memcmp(door->dest.raw, path->remote_gid, sizeof(door->dest.raw));
}

static struct host_door *open_door(const struct sw_cm_path *path, uint64_t due_ns)
{
    struct host_door *host = doors;
    while (host && !leads_to(&host->door, path))
        host = host->next;
    if (!host) {
        host = malloc(sizeof(*host));
        if (!host)
            return NULL;
        *host = (struct host_door){.next = doors,
                                   .door = {.ifindex = path->ifindex, .fd = -1},
                                   .due_ns = due_ns,
                                   .pause_ns = PAUSE_FIRST_NS};
        memcpy(host->door.source.raw, path->local_gid, sizeof(host->door.source.raw));
        memcpy(host->door.dest.raw, path->remote_gid, sizeof(host->door.dest.raw));
        doors = host;
    }
    host->users++;
    return host;
}

static void leave_door(struct host_door *host)
{
    if (--host->users)
        return;
    struct host_door **at = &doors;
    while (*at != host)
        at = &(*at)->next;
    *at = host->next;
    sw_door_close(&host->door);
    free(host);
}

static void pause_door(struct host_door *host, uint64_t now_ns)
{
    sw_door_close(&host->door);
    host->due_ns = now_ns + host->pause_ns;
    host->pause_ns = sw_min_u64(2 * host->pause_ns, PAUSE_MAX_NS);
}

/* ---- requests ---- */

void sw_ucm_unheard_begin(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    if (!is_unheard(id) || !sw_agent_is_far(&id->cm.path))
        return;
    struct unheard *unheard = malloc(sizeof(*unheard));
    if (!unheard)
        return;
    *unheard =
        (struct unheard){.next = unheard_all, .id = id, .ready_ns = sw_clock_ns() + FIRST_NS};
    unheard->host = open_door(&id->cm.path, unheard->ready_ns);
    if (!unheard->host) {
        free(unheard);
        return;
    }
    unheard_all = unheard;
    sw_agent_plan(unheard->host->due_ns);
}

static void drop_unheard(struct unheard **at)
{
    struct unheard *unheard = *at;
    *at = unheard->next;
    leave_door(unheard->host);
    free(unheard);
}

void sw_ucm_unheard_forget(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    for (struct unheard **at = &unheard_all; *at; at = &(*at)->next)
        if ((*at)->id == id) {
            drop_unheard(at);
            return;
        }
}

static void drop_heard(void)
{
    for (struct unheard **at = &unheard_all; *at;)
        if (is_unheard((*at)->id))
            at = &(*at)->next;
        else
            drop_unheard(at);
}

/* ---- probing ---- */

/* By the request that has waited longest, which is said once more by it. */
static void probe_host(struct host_door *host, uint64_t now_ns)
{
    struct unheard *oldest = NULL;
    uint64_t ready_ns = UINT64_MAX;
    for (struct unheard *unheard = unheard_all; unheard; unheard = unheard->next) {
        if (unheard->host != host)
            continue;
        ready_ns = sw_min_u64(ready_ns, unheard->ready_ns);
        if (now_ns >= unheard->ready_ns && unheard->id->cm.copies >= COPIES_MIN)
            oldest = unheard;
    }
    host->due_ns = sw_max_u64(ready_ns, now_ns + LOOK_FIRST_NS);
    if (!oldest)
        return;
    if (!sw_door_probe(&host->door, oldest->id->cm.last))
        return pause_door(host, now_ns);
    sw_cm_count_copy(&oldest->id->cm);
    for (struct unheard *unheard = unheard_all; unheard; unheard = unheard->next)
        if (unheard->host == host)
            unheard->vain = unheard->id->cm.copies;
    host->look_ns = LOOK_FIRST_NS;
    host->due_ns = now_ns + host->look_ns;
}

/* Copies that left after the probe may have found somebody. Those of a REQ are refused only if they
 * left before, and cm/ waits for what becomes of the others. One refusal ends a SIDR_REQ, so it is
 * put off. Returns how many answers that took. */
static uint32_t refuse_copies(struct unheard *unheard)
{
    struct sw_cm_id *cm = &unheard->id->cm;
    const uint32_t vain = unheard->vain;
    unheard->vain = 0;
    if (vain < COPIES_MIN || (cm->state == SW_CM_SIDR_REQ_SENT && cm->copies != vain))
        return 0;
    for (uint32_t i = 0; i < vain; i++)
        sw_agent_refuse(&cm->path, cm->last);
    return vain;
}

/* An answer that got lost here is made up for by the next probe. */
static void refuse_some(struct host_door *host, uint64_t now_ns)
{
    uint32_t answers = 0;
    for (struct unheard *unheard = unheard_all; unheard; unheard = unheard->next) {
        if (unheard->host != host)
            continue;
        if (answers >= ANSWERS_MAX) {
            host->due_ns = now_ns + SW_NS_PER_MS;
            return;
        }
        answers += refuse_copies(unheard);
    }
    host->is_shut = false;
    host->pause_ns = PAUSE_FIRST_NS;
    host->due_ns = now_ns + FIRST_NS;
}

static void look_at_door(struct host_door *host, uint64_t now_ns)
{
    const bool was_tcp = host->door.is_tcp;
    if (sw_door_look(&host->door)) {
        sw_door_close(&host->door);
        host->is_shut = true;
        return refuse_some(host, now_ns);
    }
    host->look_ns = host->door.is_tcp != was_tcp ? LOOK_FIRST_NS : 2 * host->look_ns;
    host->due_ns = now_ns + host->look_ns;
    if (host->look_ns > LOOK_LAST_NS)
        pause_door(host, now_ns);
}

static void step_door(struct host_door *host, uint64_t now_ns)
{
    if (host->is_shut)
        refuse_some(host, now_ns);
    else if (host->door.fd >= 0)
        look_at_door(host, now_ns);
    else
        probe_host(host, now_ns);
}

uint64_t sw_ucm_unheard_tick(uint64_t now_ns)
{
    sw_rdmacm_assert_locked();
    uint64_t next_ns = UINT64_MAX;
    drop_heard();
    for (struct host_door *host = doors; host; host = host->next) {
        if (now_ns >= host->due_ns)
            step_door(host, now_ns);
        next_ns = sw_min_u64(next_ns, host->due_ns);
    }
    return next_ns;
}

void sw_ucm_unheard_fork_child(void)
{
    while (unheard_all)
        drop_unheard(&unheard_all);
}
