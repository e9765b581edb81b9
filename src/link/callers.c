/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/callers.h"

#include <assert.h>
#include <stddef.h>

#include "base/fds.h"
#include "base/minmax.h"

static bool is_from(const struct sw_caller *caller, const struct in6_addr *from)
{
    return IN6_ARE_ADDR_EQUAL(&caller->from, from);
}

static uint32_t count_from(const struct sw_callers *callers, const struct in6_addr *from)
{
    const struct sw_caller *at = callers->newest;
    while (at && !is_from(at, from))
        at = at->older;
    return at ? at->rank : 0;
}

/* NULL: of any address. */
static struct sw_caller *oldest_from(const struct sw_callers *callers, const struct in6_addr *from)
{
    struct sw_caller *oldest = NULL;
    for (struct sw_caller *at = callers->oldest; at; at = at->newer)
        if ((!from || is_from(at, from)) && (!oldest || at->since_ns < oldest->since_ns))
            oldest = at;
    return oldest;
}

/* Of several addresses that have as many, the one that had them first. */
static struct sw_caller *oldest_of_crowd(const struct sw_callers *callers)
{
    const struct sw_caller *crowd = callers->oldest;
    for (const struct sw_caller *at = crowd; at; at = at->newer)
        if (at->rank > crowd->rank)
            crowd = at;
    return oldest_from(callers, crowd->rank > 1 ? &crowd->from : NULL);
}

/* NULL: there is room. */
static struct sw_caller *in_the_way(const struct sw_callers *callers, const struct in6_addr *from)
{
    const struct sw_callers_rule *rule = callers->rule;
    const uint32_t places = sw_fds_share(rule->fds_parts, rule->places_max);
    const uint32_t of_address = sw_max_u32(places / rule->address_parts, 1);
    if (count_from(callers, from) >= of_address)
        return oldest_from(callers, from);
    return callers->count >= places ? oldest_of_crowd(callers) : NULL;
}

void sw_callers_make_room(struct sw_callers *callers, const struct in6_addr *from)
{
    const struct sw_callers_rule *rule = callers->rule;
    struct sw_caller *caller;
    while ((caller = in_the_way(callers, from))) {
        const uint32_t before = callers->count;
        if (!rule->hear || rule->hear(caller))
            rule->turn_away(caller);
        assert(callers->count < before);
    }
}

void sw_callers_add(struct sw_callers *callers, struct sw_caller *caller,
                    const struct in6_addr *from, uint64_t now_ns)
{
    *caller = (struct sw_caller){.older = callers->newest,
                                 .from = *from,
                                 .rank = count_from(callers, from) + 1,
                                 .since_ns = now_ns};
    *(callers->newest ? &callers->newest->newer : &callers->oldest) = caller;
    callers->newest = caller;
    callers->count++;
}

void sw_callers_remove(struct sw_callers *callers, struct sw_caller *caller)
{
    for (struct sw_caller *at = caller->newer; at; at = at->newer)
        at->rank -= is_from(at, &caller->from);
    *(caller->older ? &caller->older->newer : &callers->oldest) = caller->newer;
    *(caller->newer ? &caller->newer->older : &callers->newest) = caller->older;
    callers->count--;
}

uint64_t sw_callers_tend(struct sw_callers *callers, uint64_t now_ns)
{
    const uint64_t patience_ns = callers->count ? callers->rule->patience_ns : 0;
    uint64_t next_ns = UINT64_MAX;
    for (struct sw_caller *at = callers->oldest, *newer; patience_ns && at; at = newer) {
        newer = at->newer;
        if (now_ns >= at->since_ns + patience_ns)
            callers->rule->turn_away(at);
        else
            next_ns = sw_min_u64(next_ns, at->since_ns + patience_ns);
    }
    return next_ns;
}
