/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/qp/repath.h"

#include "base/clock.h"

#define BURST_NS (5 * SW_NS_PER_MS) /* copies that come together count once */
#define DOUBTS_MAX 2u
#define CLAIM_TIMEOUTS \
    3u /* until the peer has claimed the flow, and what is sent then is answered */

uint32_t sw_repath_timeouts_of(const struct sw_retry *retry)
{
    const uint64_t timer_ns = sw_retry_timer_ns(retry);
    return timer_ns ? (uint32_t)(retry->min_ns / timer_ns) : 0;
}

bool sw_repath_unanswered(struct sw_repath *repath, uint64_t timeouts, uint32_t una,
                          const struct sw_retry *retry)
{
    const bool is_new = timeouts != repath->timeouts;
    repath->timeouts = timeouts;
    if (una != repath->una) {
        repath->una = una;
        repath->waits = 0;
    }
    /* A peer that does not run answers on no path. */
    if (!is_new || retry->peer == SW_RETRY_PEER_WAITS)
        return false;
    const uint32_t claim = retry->peer == SW_RETRY_PEER_RUNS ? CLAIM_TIMEOUTS : 0;
    const bool leaves =
        ++repath->waits > sw_repath_timeouts_of(retry) + claim && retry->backoff > 1;
    if (leaves && claim)
        repath->waits = 1; /* the other path has its time, too */
    return leaves;
}

bool sw_repath_is_doubted(const struct sw_repath *repath, uint32_t una)
{
    return repath->waits && repath->una == una;
}

bool sw_repath_unheard(struct sw_repath *repath, uint64_t duplicates, uint32_t expected,
                       const struct sw_retry *retry, uint64_t now_ns)
{
    const bool asks_again = duplicates != repath->duplicates;
    repath->duplicates = duplicates;
    if (expected != repath->expected) {
        repath->expected = expected;
        repath->doubts = 0;
        return false;
    }
    if (!asks_again || now_ns - repath->doubted_ns < BURST_NS)
        return false;
    repath->doubted_ns = now_ns;
    return ++repath->doubts > DOUBTS_MAX + sw_repath_timeouts_of(retry);
}
