/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/roce/way.h"

#include "base/clock.h"

#define BURST_NS (5 * SW_NS_PER_MS) /* copies that come together count once */
#define DOUBTS_MAX 2u

uint32_t sw_way_timeouts_of(const struct sw_retry *retry)
{
    const uint64_t timer_ns = sw_retry_timer_ns(retry);
    return timer_ns ? (uint32_t)(retry->min_ns / timer_ns) : 0;
}

bool sw_way_unanswered(struct sw_way *way, uint64_t timeouts, uint32_t una,
                       const struct sw_retry *retry)
{
    const bool is_new = timeouts != way->timeouts;
    way->timeouts = timeouts;
    if (una != way->una) {
        way->una = una;
        way->waits = 0;
    }
    /* A peer that does not run answers on no way. */
    if (!is_new || retry->peer == SW_RETRY_PEER_WAITS)
        return false;
    return ++way->waits > sw_way_timeouts_of(retry) && retry->backoff > 1;
}

bool sw_way_unheard(struct sw_way *way, uint64_t duplicates, uint32_t expected,
                    const struct sw_retry *retry, uint64_t now_ns)
{
    const bool asks_again = duplicates != way->duplicates;
    way->duplicates = duplicates;
    if (expected != way->expected) {
        way->expected = expected;
        way->doubts = 0;
        return false;
    }
    if (!asks_again || now_ns - way->doubted_ns < BURST_NS)
        return false;
    way->doubted_ns = now_ns;
    return ++way->doubts > DOUBTS_MAX + sw_way_timeouts_of(retry);
}
