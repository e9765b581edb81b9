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

/* Most requests are answered before anybody knocks. By then a second copy has been sent (RESEND_NS
 * in service.c): an adapter that takes the packets of its port past its kernel is not taken for
 * nobody as one copy was lost. A kernel says only so often that a port is closed, so this goes on.
 */
#define FIRST_NS (250 * SW_NS_PER_MS)
#define GAP_FIRST_NS (5 * SW_NS_PER_MS)
#define GAP_MAX_NS SW_NS_PER_S

struct unheard {
    struct unheard *next;
    struct sw_ucm_id *id;
    struct sw_door door;
    uint64_t knock_ns, gap_ns;
};

static struct unheard *unheard_all;

static bool is_unheard(const struct sw_ucm_id *id)
{
    return (id->cm.state == SW_CM_REQ_SENT || id->cm.state == SW_CM_SIDR_REQ_SENT) &&
           !id->cm.is_heard && !id->cm.destroyed;
}

void sw_ucm_unheard_begin(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    union ibv_gid source, dest;
    if (!is_unheard(id) || !sw_agent_is_far(&id->cm.path))
        return;
    struct unheard *unheard = malloc(sizeof(*unheard));
    if (!unheard)
        return;
    *unheard = (struct unheard){.next = unheard_all,
                                .id = id,
                                .knock_ns = sw_clock_ns() + FIRST_NS,
                                .gap_ns = GAP_FIRST_NS};
    memcpy(source.raw, id->cm.path.local_gid, sizeof(source.raw));
    memcpy(dest.raw, id->cm.path.remote_gid, sizeof(dest.raw));
    unheard->door =
        (struct sw_door){.source = source, .dest = dest, .ifindex = id->cm.path.ifindex, .fd = -1};
    unheard_all = unheard;
    sw_agent_plan(unheard->knock_ns);
}

static void drop_unheard(struct unheard **at)
{
    struct unheard *unheard = *at;
    *at = unheard->next;
    sw_door_close(&unheard->door);
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

/* Opened when it is first needed: most are never. Each copy of the request is refused, as none of
 * them can have found anybody. */
static bool refuse_unheard(struct unheard *unheard, uint64_t now_ns)
{
    struct sw_cm_id *cm = &unheard->id->cm;
    if (unheard->door.fd < 0 && !unheard->door.is_vain && !unheard->door.is_tcp)
        sw_door_open(&unheard->door, &unheard->door.source, &unheard->door.dest,
                     unheard->door.ifindex);
    if (!sw_door_knock(&unheard->door)) {
        unheard->knock_ns = now_ns + unheard->gap_ns;
        unheard->gap_ns = sw_min_u64(2 * unheard->gap_ns, GAP_MAX_NS);
        return false;
    }
    for (uint32_t i = 0; i == 0 || i < cm->copies; i++)
        sw_agent_refuse(&cm->path, cm->last);
    return true;
}

uint64_t sw_ucm_unheard_tick(uint64_t now_ns)
{
    sw_rdmacm_assert_locked();
    uint64_t next_ns = UINT64_MAX;
    for (struct unheard **at = &unheard_all; *at;) {
        struct unheard *unheard = *at;
        if (!is_unheard(unheard->id) ||
            (now_ns >= unheard->knock_ns && refuse_unheard(unheard, now_ns))) {
            drop_unheard(at);
            continue;
        }
        next_ns = sw_min_u64(next_ns, unheard->knock_ns);
        at = &unheard->next;
    }
    return next_ns;
}

void sw_ucm_unheard_fork_child(void)
{
    while (unheard_all)
        drop_unheard(&unheard_all);
}
