/* SPDX-License-Identifier: BSD-2-Clause */
/* What a connection's machines have counted, as the device's counters tell it. They are asked when
 * somebody reads, and when the connection ends: the data path adds up in its own memory. */
#include "link/roce/qp/account.h"

#include "device/queue/counters.h"
#include "link/roce/qp/qp.h"

static void read_machines(const struct sw_roce_qp *r, uint64_t out[SW_COUNTER_COUNT])
{
    const struct sw_requester_counts *requester = &r->requester.counts;
    const struct sw_responder_counts *responder = &r->responder.counts;
    out[SW_ACK_TIMEOUT] = requester->timeouts;
    out[SW_PACKET_SEQ_ERR] = requester->gaps;
    out[SW_RETRANSMITTED] = requester->resent;
    out[SW_RNR_RECEIVED] = requester->rnr_naks;
    out[SW_OUT_OF_SEQUENCE] = responder->early;
    out[SW_DUPLICATE_REQUEST] = responder->duplicates;
    out[SW_RX_DROP_ASTRAY] = r->counts.astray + responder->astray;
    out[SW_CNP_SENT] = responder->cnps;
    out[SW_RNR_SENT] = r->counts.rnrs_sent;
    out[SW_CNP_HANDLED] = r->counts.cnps_received;
    out[SW_ECN_MARKED] = r->counts.marked;
}

void sw_roce_account(struct sw_roce_qp *r)
{
    sw_lock_assert_held(&r->qp->lock);
    uint64_t counted[SW_COUNTER_COUNT] = {0};
    read_machines(r, counted);
    for (int i = 0; i < SW_COUNTER_COUNT; i++) {
        if (counted[i] > r->counts.told[i])
            sw_counter_add_many(r->qp->ctx->netdev, (enum sw_counter)i,
                                counted[i] - r->counts.told[i]);
        r->counts.told[i] = counted[i];
    }
}
