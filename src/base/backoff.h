/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Backing off: an attempt that has failed is not repeated for a while, and each time that it fails
 * again for twice as long, up to a bound. A success begins anew.
 *
 * A rest has the caller's unit. Where that is time, the caller notes when the rest ends. Where it
 * is turns, they are counted down here. No clock, no lock: it belongs to its caller.
 */
#ifndef SW_BASE_BACKOFF_H
#define SW_BASE_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

struct sw_backoff_rule {
    uint64_t first;        /* the first rest */
    uint8_t doublings_max; /* of it */
    uint8_t failures_min;  /* in a row before a rest; 0 is 1 */
    bool is_counted_anew;  /* after each rest; else each further failure is followed by one */
};

struct sw_backoff {
    uint8_t failures;  /* in a row, as far as they count */
    uint8_t doublings; /* of the next rest */
    uint16_t turns;    /* still to be left out */
};

/* The next rest, however few failures there were. */
static inline uint64_t sw_backoff_rest(struct sw_backoff *backoff,
                                       const struct sw_backoff_rule *rule)
{
    const uint64_t rest = rule->first << backoff->doublings;
    if (backoff->doublings < rule->doublings_max)
        backoff->doublings++;
    if (rule->is_counted_anew)
        backoff->failures = 0;
    return rest;
}

/* An attempt has failed. Returns how long to rest; 0: not at all yet. */
static inline uint64_t sw_backoff_fail(struct sw_backoff *backoff,
                                       const struct sw_backoff_rule *rule)
{
    if (backoff->failures < UINT8_MAX)
        backoff->failures++;
    return backoff->failures < rule->failures_min ? 0 : sw_backoff_rest(backoff, rule);
}

/* A success: it begins anew. Turns that are to be left out still are. */
static inline void sw_backoff_succeed(struct sw_backoff *backoff)
{
    backoff->failures = backoff->doublings = 0;
}

/* The same as sw_backoff_fail(), where the rest is of turns. */
static inline void sw_backoff_fail_turn(struct sw_backoff *backoff,
                                        const struct sw_backoff_rule *rule)
{
    backoff->turns = (uint16_t)sw_backoff_fail(backoff, rule);
}

/* Whether an attempt may be made now. */
static inline bool sw_backoff_has_turn(const struct sw_backoff *backoff)
{
    return backoff->turns == 0;
}

/* Whether this turn is left out, which counts it. */
static inline bool sw_backoff_skips(struct sw_backoff *backoff)
{
    if (sw_backoff_has_turn(backoff))
        return false;
    backoff->turns--;
    return true;
}

#endif
