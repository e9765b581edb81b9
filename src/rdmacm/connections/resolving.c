/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/connections/resolving.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "device/nic/neighbour.h"
#include "device/nic/netdev.h"
#include "rdmacm/connections/event.h"
#include "rdmacm/connections/route.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/agent.h"

/* A neighbour answers within a millisecond or so. The kernel asks it three times, a second apart,
 * and forgets the question then. */
#define LOOK_FIRST_NS (SW_NS_PER_MS / 2)
#define LOOK_MAX_NS (64 * SW_NS_PER_MS)
/* A look takes some 10 us of the thread that works for all queue pairs: one a millisecond, however
 * many neighbours are absent. */
#define LOOKS_APART_NS SW_NS_PER_MS
#define ASK_AGAIN_NS SW_NS_PER_S

/* How one address is reached from another: asked once, for all IDs that want to know it. */
struct sw_ucm_neighbour {
    struct sw_ucm_neighbour *next;
    union ibv_gid source, dest;
    uint32_t ifindex, users;
    enum sw_neighbour_state state; /* at the last look */
    uint64_t asked_ns, looked_ns, look_ns, gap_ns;
};

struct sw_ucm_resolving {
    struct sw_ucm_resolving *next;
    struct sw_ucm_id *id;
    struct sw_ucm_neighbour *neighbour;
    union sw_address before;
    bool had_device;
    uint64_t until_ns;
};

static struct sw_ucm_resolving *all;
static struct sw_ucm_neighbour *neighbours;
static uint32_t neighbour_count;

/* ---- neighbours ---- */

static void look_at_neighbour(struct sw_ucm_neighbour *neighbour, uint64_t now_ns)
{
    neighbour->state = sw_neighbour_look(neighbour->ifindex, &neighbour->source, &neighbour->dest);
    neighbour->looked_ns = now_ns;
    if (neighbour->state == SW_NEIGHBOUR_ABSENT &&
        (!neighbour->asked_ns || now_ns >= neighbour->asked_ns + ASK_AGAIN_NS)) {
        if (!sw_neighbour_ask(neighbour->ifindex, &neighbour->source, &neighbour->dest))
            neighbour->state = SW_NEIGHBOUR_KNOWN;
        neighbour->asked_ns = now_ns;
    }
    neighbour->look_ns = now_ns + neighbour->gap_ns;
    neighbour->gap_ns = sw_min_u64(2 * neighbour->gap_ns,
                                   sw_max_u64(LOOK_MAX_NS, neighbour_count * LOOKS_APART_NS));
}

static struct sw_ucm_neighbour *find_neighbour(uint32_t ifindex, const union ibv_gid *source,
                                               const union ibv_gid *dest)
{
    struct sw_ucm_neighbour *neighbour = neighbours;
    while (neighbour && (neighbour->ifindex != ifindex ||
                         memcmp(&neighbour->source, source, sizeof(*source)) != 0 ||
                         memcmp(&neighbour->dest, dest, sizeof(*dest)) != 0))
        neighbour = neighbour->next;
    return neighbour;
}

/* NULL: packets can leave. */
static struct sw_ucm_neighbour *await_neighbour(const struct sw_ucm_id *id, uint64_t now_ns)
{
    struct sw_ucm_neighbour first = {.ifindex = id->ifindex, .gap_ns = LOOK_FIRST_NS};
    sw_address_to_gid(&id->src, first.source.raw);
    sw_address_to_gid(&id->dst, first.dest.raw);
    struct sw_ucm_neighbour *neighbour = find_neighbour(first.ifindex, &first.source, &first.dest);
    if (!neighbour) {
        look_at_neighbour(&first, now_ns);
        if (first.state == SW_NEIGHBOUR_KNOWN || !(neighbour = malloc(sizeof(*neighbour))))
            return NULL;
        first.next = neighbours;
        *neighbour = first;
        neighbours = neighbour;
        neighbour_count++;
    }
    neighbour->users++;
    return neighbour;
}

static void leave_neighbour(struct sw_ucm_neighbour *neighbour)
{
    if (--neighbour->users)
        return;
    struct sw_ucm_neighbour **at = &neighbours;
    while (*at != neighbour)
        at = &(*at)->next;
    *at = neighbour->next;
    neighbour_count--;
    free(neighbour);
}

/* ---- IDs ---- */

static bool needs_neighbour(const struct sw_ucm_id *id)
{
    union ibv_gid dest;
    sw_address_to_gid(&id->dst, dest.raw);
    return id->dst.family != AF_IB && !sw_address_is_any(&id->dst) &&
           !sw_address_is_loopback(&id->dst) && !sw_netdev_is_local_gid(&dest);
}

bool sw_ucm_resolving_begin(struct sw_ucm_id *id, const union sw_address *before, bool had_device,
                            uint32_t timeout_ms)
{
    sw_rdmacm_assert_locked();
    const uint64_t now_ns = sw_clock_ns();
    struct sw_ucm_neighbour *neighbour = needs_neighbour(id) ? await_neighbour(id, now_ns) : NULL;
    if (!neighbour)
        return false;
    struct sw_ucm_resolving *resolving = malloc(sizeof(*resolving));
    if (!resolving) {
        leave_neighbour(neighbour);
        return false;
    }
    *resolving = (struct sw_ucm_resolving){.next = all,
                                           .id = id,
                                           .neighbour = neighbour,
                                           .before = *before,
                                           .had_device = had_device,
                                           .until_ns = now_ns + timeout_ms * SW_NS_PER_MS};
    all = resolving;
    id->state = SW_UCM_ADDR_QUERY;
    sw_agent_plan(sw_min_u64(neighbour->look_ns, resolving->until_ns));
    return true;
}

static void drop_resolving(struct sw_ucm_resolving **at)
{
    struct sw_ucm_resolving *resolving = *at;
    *at = resolving->next;
    leave_neighbour(resolving->neighbour);
    free(resolving);
}

void sw_ucm_resolving_forget(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    for (struct sw_ucm_resolving **at = &all; *at; at = &(*at)->next)
        if ((*at)->id == id) {
            drop_resolving(at);
            return;
        }
}

static void tell_resolved(struct sw_ucm_resolving **at, int status)
{
    struct sw_ucm_id *id = (*at)->id;
    id->state = status ? SW_UCM_ADDR_BOUND : SW_UCM_ADDR_RESOLVED;
    if (status) {
        id->src = (*at)->before;
        id->dev = (*at)->had_device ? id->dev : NULL;
    } else {
        sw_ucm_route_look(id);
    }
    drop_resolving(at);
    sw_ucm_event_tell(id, status ? SW_UCM_ADDR_ERROR_EVENT : SW_UCM_ADDR_RESOLVED_EVENT, status);
}

/* Nobody is given up without a look that is not older than another would be. */
static bool resolving_is_answered(const struct sw_ucm_resolving *resolving, uint64_t now_ns,
                                  int *status)
{
    struct sw_ucm_neighbour *neighbour = resolving->neighbour;
    const bool is_late = now_ns >= resolving->until_ns;
    if (is_late && neighbour->state != SW_NEIGHBOUR_KNOWN &&
        now_ns >= neighbour->looked_ns + LOOK_MAX_NS / 2)
        look_at_neighbour(neighbour, now_ns);
    *status = neighbour->state == SW_NEIGHBOUR_KNOWN ? 0 : -ETIMEDOUT;
    return is_late || !*status;
}

uint64_t sw_ucm_resolving_tick(uint64_t now_ns)
{
    sw_rdmacm_assert_locked();
    uint64_t next_ns = UINT64_MAX;
    int status;
    for (struct sw_ucm_neighbour *neighbour = neighbours; neighbour; neighbour = neighbour->next)
        if (now_ns >= neighbour->look_ns)
            look_at_neighbour(neighbour, now_ns);
    for (struct sw_ucm_resolving **at = &all; *at;) {
        if (resolving_is_answered(*at, now_ns, &status)) {
            tell_resolved(at, status);
            continue;
        }
        next_ns = sw_min_u64(next_ns, (*at)->until_ns);
        at = &(*at)->next;
    }
    for (struct sw_ucm_neighbour *neighbour = neighbours; neighbour; neighbour = neighbour->next)
        next_ns = sw_min_u64(next_ns, neighbour->look_ns);
    return next_ns;
}

void sw_ucm_resolving_fork_child(void)
{
    while (all)
        drop_resolving(&all);
}
