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
#define ASK_AGAIN_NS SW_NS_PER_S

struct sw_ucm_resolving {
    struct sw_ucm_resolving *next;
    struct sw_ucm_id *id;
    union sw_address before;
    bool had_device;
    union ibv_gid source, dest;
    uint64_t until_ns, asked_ns, look_ns, gap_ns;
};

static struct sw_ucm_resolving *all;

static bool needs_neighbour(const struct sw_ucm_id *id)
{
    union ibv_gid dest;
    sw_address_to_gid(&id->dst, dest.raw);
    return id->dst.family != AF_IB && !sw_address_is_any(&id->dst) &&
           !sw_address_is_loopback(&id->dst) && !sw_netdev_is_local_gid(&dest);
}

static void resolving_ask(struct sw_ucm_resolving *resolving, uint64_t now_ns)
{
    sw_neighbour_ask(resolving->id->ifindex, &resolving->source, &resolving->dest);
    resolving->asked_ns = now_ns;
}

bool sw_ucm_resolving_begin(struct sw_ucm_id *id, const union sw_address *before, bool had_device,
                            uint32_t timeout_ms)
{
    sw_rdmacm_assert_locked();
    union ibv_gid source, dest;
    const uint64_t now_ns = sw_clock_ns();
    sw_address_to_gid(&id->src, source.raw);
    sw_address_to_gid(&id->dst, dest.raw);
    if (!needs_neighbour(id) ||
        sw_neighbour_look(id->ifindex, &source, &dest) == SW_NEIGHBOUR_KNOWN)
        return false;
    struct sw_ucm_resolving *resolving = malloc(sizeof(*resolving));
    if (!resolving)
        return false;
    *resolving = (struct sw_ucm_resolving){.next = all,
                                           .id = id,
                                           .before = *before,
                                           .had_device = had_device,
                                           .source = source,
                                           .dest = dest,
                                           .until_ns = now_ns + timeout_ms * SW_NS_PER_MS,
                                           .look_ns = now_ns + LOOK_FIRST_NS,
                                           .gap_ns = LOOK_FIRST_NS};
    all = resolving;
    id->state = SW_UCM_ADDR_QUERY;
    resolving_ask(resolving, now_ns);
    sw_agent_plan(resolving->look_ns);
    return true;
}

void sw_ucm_resolving_forget(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    for (struct sw_ucm_resolving **at = &all; *at; at = &(*at)->next)
        if ((*at)->id == id) {
            struct sw_ucm_resolving *found = *at;
            *at = found->next;
            free(found);
            return;
        }
}

/* Frees it. */
static void tell_resolved(struct sw_ucm_resolving *resolving, int status)
{
    struct sw_ucm_id *id = resolving->id;
    id->state = status ? SW_UCM_ADDR_BOUND : SW_UCM_ADDR_RESOLVED;
    if (status) {
        id->src = resolving->before;
        id->dev = resolving->had_device ? id->dev : NULL;
    } else {
        sw_ucm_route_look(id);
    }
    sw_ucm_resolving_forget(id);
    sw_ucm_event_tell(id, status ? SW_UCM_ADDR_ERROR_EVENT : SW_UCM_ADDR_RESOLVED_EVENT, status);
}

static void look_again(struct sw_ucm_resolving *resolving, uint64_t now_ns)
{
    const enum sw_neighbour_state state =
        sw_neighbour_look(resolving->id->ifindex, &resolving->source, &resolving->dest);
    if (state == SW_NEIGHBOUR_KNOWN)
        return tell_resolved(resolving, 0);
    if (now_ns >= resolving->until_ns)
        return tell_resolved(resolving, -ETIMEDOUT);
    if (state == SW_NEIGHBOUR_ABSENT && now_ns >= resolving->asked_ns + ASK_AGAIN_NS)
        resolving_ask(resolving, now_ns);
    resolving->gap_ns = sw_min_u64(2 * resolving->gap_ns, LOOK_MAX_NS);
    resolving->look_ns = sw_min_u64(now_ns + resolving->gap_ns, resolving->until_ns);
}

uint64_t sw_ucm_resolving_tick(uint64_t now_ns)
{
    sw_rdmacm_assert_locked();
    uint64_t next_ns = UINT64_MAX;
    for (struct sw_ucm_resolving *resolving = all, *next; resolving; resolving = next) {
        next = resolving->next;
        if (now_ns >= resolving->look_ns)
            look_again(resolving, now_ns);
    }
    for (const struct sw_ucm_resolving *resolving = all; resolving; resolving = resolving->next)
        next_ns = sw_min_u64(next_ns, resolving->look_ns);
    return next_ns;
}

void sw_ucm_resolving_fork_child(void)
{
    while (all) {
        struct sw_ucm_resolving *resolving = all;
        all = resolving->next;
        free(resolving);
    }
}
