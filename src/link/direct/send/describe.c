/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/send/describe.h"

#include "base/clock.h"
#include "link/connections.h"
#include "link/direct/bind/connection.h"

static enum sw_connection_wait send_wait_of(const struct sw_direct_send *send, uint64_t *since_ns)
{
    *since_ns = send->rnr_ns;
    if (send->rnr_ns)
        return SW_CONNECTION_WAITS_RECEIVE;
    *since_ns = send->unbound_ns;
    if (send->unbound_ns)
        return SW_CONNECTION_WAITS_MEETING;
    *since_ns = send->stalled_ns;
    return send->stalled_ns ? SW_CONNECTION_WAITS_PROCESS : SW_CONNECTION_WAITS_NOT;
}

void sw_direct_describe(const struct sw_qp *qp, struct sw_connection *out)
{
    sw_lock_assert_held(&qp->lock);
    const struct sw_direct_qp *d = qp->link_state;
    const uint64_t now_ns = sw_clock_ns();
    uint64_t since_ns;
    if (!d || qp->sq.head == qp->sq.tail)
        return;
    out->reads = d->send.reads_due;
    out->wait = (uint8_t)send_wait_of(&d->send, &since_ns);
    if (out->wait != SW_CONNECTION_WAITS_NOT && now_ns > since_ns)
        out->waited_ms = (uint32_t)((now_ns - since_ns) / SW_NS_PER_MS);
    if (out->wait == SW_CONNECTION_WAITS_RECEIVE) {
        out->tries = (uint8_t)(d->send.rnr_tries < UINT8_MAX ? d->send.rnr_tries : UINT8_MAX);
        out->tries_most = qp->attr.rnr_retry;
    }
}
