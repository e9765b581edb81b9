/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/roce/qp/describe.h"

#include "base/clock.h"
#include "base/minmax.h"
#include "link/connections.h"
#include "link/roce/qp/qp.h"

#define SILENCE_NS (100 * SW_NS_PER_MS) /* of a peer, that is no pause any more */

static bool describe_is_silent(const struct sw_retry *retry, uint64_t now_ns)
{
    return retry->running && now_ns > retry->alive_ns + SILENCE_NS;
}

/* Why the next request does not leave, though the peer answers. */
static enum sw_connection_wait wait_of_next(const struct sw_requester *r)
{
    const struct sw_request *next = &r->ring[r->sent & r->mask];
    if (r->sent == r->tail)
        return SW_CONNECTION_WAITS_NOT;
    if ((next->flags & SW_REQUEST_FENCE) && r->reads.count)
        return SW_CONNECTION_WAITS_FENCE;
    if (sw_request_is_answered(next) && r->reads.count >= r->config.max_rd_atomic)
        return SW_CONNECTION_WAITS_DEPTH;
    if (sw_flight_out(&r->flight) >= sw_congestion_window(&r->congestion))
        return SW_CONNECTION_WAITS_WINDOW;
    return SW_CONNECTION_WAITS_NOT;
}

static enum sw_connection_wait roce_wait_of(const struct sw_roce_qp *r, uint64_t now_ns)
{
    const struct sw_requester *requester = &r->requester;
    if (requester->rnr_until_ns)
        return SW_CONNECTION_WAITS_RECEIVE;
    if (describe_is_silent(&requester->retry, now_ns))
        return requester->retry.peer == SW_RETRY_PEER_WAITS ? SW_CONNECTION_WAITS_PROCESS
                                                            : SW_CONNECTION_WAITS_PEER;
    return r->is_limited ? SW_CONNECTION_WAITS_RATE : wait_of_next(requester);
}

void sw_roce_describe(const struct sw_qp *qp, struct sw_connection *out)
{
    sw_lock_assert_held(&qp->lock);
    const struct sw_roce_qp *r = qp->link_state;
    const uint64_t now_ns = sw_clock_ns();
    if (!r || !r->ring || qp->sq.head == qp->sq.tail)
        return;
    const struct sw_retry *retry = &r->requester.retry;
    out->reads = r->requester.reads.count;
    out->wait = (uint8_t)roce_wait_of(r, now_ns);
    if (out->wait == SW_CONNECTION_WAITS_RECEIVE) {
        out->tries = retry->rnr_count;
        out->tries_most = retry->rnr_retry;
    } else if (describe_is_silent(retry, now_ns)) {
        out->waited_ms = (uint32_t)((now_ns - retry->alive_ns) / SW_NS_PER_MS);
        out->end_ms = (uint32_t)sw_min_u64(
            2 * retry->timeout_ns * (retry->retry_cnt + 1u) / SW_NS_PER_MS, UINT32_MAX);
    }
}
