/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/callers.h"

#include <assert.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/minmax.h"

#define DOUBT_NS (10 * SW_NS_PER_S)
#define VAIN_NS (2 * SW_NS_PER_S) /* once in this time may be in vain, whoever calls */
#define VAIN_MAX_NS (2 * VAIN_NS)

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

/* Where several addresses have as many, the one that had them first. */
static struct sw_caller *oldest_of_crowd(const struct sw_callers *callers)
{
    const struct sw_caller *crowd = callers->oldest;
    for (const struct sw_caller *at = crowd; at; at = at->newer)
        if (at->rank > crowd->rank)
            crowd = at;
    return oldest_from(callers, crowd->rank > 1 ? &crowd->from : NULL);
}

static uint32_t places_of(const struct sw_callers_rule *rule)
{
    return sw_fds_share(rule->fds_parts, rule->places_max);
}

static uint32_t places_of_address(const struct sw_callers_rule *rule)
{
    return sw_max_u32(places_of(rule) / rule->address_parts, 1);
}

/* NULL: there is room. */
static struct sw_caller *in_the_way(const struct sw_callers *callers, const struct in6_addr *from)
{
    if (count_from(callers, from) >= places_of_address(callers->rule))
        return oldest_from(callers, from);
    return callers->count >= places_of(callers->rule) ? oldest_of_crowd(callers) : NULL;
}

/* ---- who may be about to speak ---- */

static bool is_doubted(const struct sw_callers *callers, const struct in6_addr *from,
                       uint64_t now_ns)
{
    for (uint32_t i = 0; i < SW_CALLERS_DOUBTED; i++)
        if (now_ns < callers->doubts[i].until_ns &&
            IN6_ARE_ADDR_EQUAL(&callers->doubts[i].from, from))
            return true;
    return false;
}

void sw_callers_doubt(struct sw_callers *callers, const struct in6_addr *from, uint64_t now_ns)
{
    uint32_t which = 0;
    while (which < SW_CALLERS_DOUBTED && !IN6_ARE_ADDR_EQUAL(&callers->doubts[which].from, from))
        which++;
    if (which == SW_CALLERS_DOUBTED)
        which = callers->next_doubt++ % SW_CALLERS_DOUBTED;
    callers->doubts[which] =
        (struct sw_callers_doubt){.from = *from, .until_ns = now_ns + DOUBT_NS};
}

static bool callers_is_awaited(const struct sw_callers *callers, const struct sw_caller *caller,
                               uint64_t now_ns)
{
    return now_ns < caller->since_ns + callers->rule->grace_ns &&
           callers->vain_until_ns < now_ns + VAIN_MAX_NS &&
           !is_doubted(callers, &caller->from, now_ns);
}

/* At once: strangers of many addresses would hold up all others with one after the other. */
static void doubt_silent(struct sw_callers *callers, uint64_t now_ns)
{
    callers->vain_until_ns = sw_max_u64(callers->vain_until_ns, now_ns) + VAIN_NS;
    for (const struct sw_caller *at = callers->oldest; at; at = at->newer)
        if (now_ns >= at->since_ns + callers->rule->grace_ns &&
            !is_doubted(callers, &at->from, now_ns))
            sw_callers_doubt(callers, &at->from, now_ns);
}

/* Nobody knows the address of the next one: it may be any that has all of its places. */
bool sw_callers_are_awaited(const struct sw_callers *callers, uint64_t now_ns)
{
    if (!callers->rule->grace_ns || !callers->count)
        return false;
    const uint32_t of_address = places_of_address(callers->rule);
    for (const struct sw_caller *at = callers->newest; at; at = at->older)
        if (at->rank == of_address &&
            callers_is_awaited(callers, oldest_from(callers, &at->from), now_ns))
            return true;
    return callers->count >= places_of(callers->rule) &&
           callers_is_awaited(callers, oldest_of_crowd(callers), now_ns);
}

void sw_callers_make_room(struct sw_callers *callers, const struct in6_addr *from, uint64_t now_ns)
{
    const struct sw_callers_rule *rule = callers->rule;
    struct sw_caller *caller;
    while ((caller = in_the_way(callers, from))) {
        const uint32_t before = callers->count;
        if (!rule->hear || rule->hear(caller)) {
            if (rule->grace_ns && now_ns >= caller->since_ns + rule->grace_ns &&
                !is_doubted(callers, &caller->from, now_ns))
                doubt_silent(callers, now_ns);
            rule->turn_away(caller);
        }
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
        if (now_ns >= at->since_ns + patience_ns) {
            sw_callers_doubt(callers, &at->from, now_ns);
            callers->rule->turn_away(at);
        } else {
            next_ns = sw_min_u64(next_ns, at->since_ns + patience_ns);
        }
    }
    return next_ns;
}
