/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The receive of a message that is coming in, whichever link brings it: taken with the first part
 * of the message, held while the other parts come, and given back by one completion. With the QP
 * locked.
 *
 *     if (!sw_receive_take(qp, &receive, &message))
 *         return SW_RNR;
 *     verdict = sw_execute_fill(&receive.claim, offset, from, len_bytes);
 *     ...
 *     sw_receive_complete(qp, &receive, &message, len_bytes, IBV_WC_RECV, IBV_WC_SUCCESS);
 */
#ifndef SW_DEVICE_SERVE_RECEIVE_H
#define SW_DEVICE_SERVE_RECEIVE_H

#include "device/serve/execute.h"

struct sw_receive {
    struct sw_recv_claim claim; /* while is_taken */
    uint32_t srq_num;           /* XRC: of the SRQ it is of; else 0 */
    bool is_taken;
};

/* Takes the receive that the message is for, unless one is held: an unreliable message of which the
 * end never came leaves its own to the next. false: there is none. */
bool sw_receive_take(struct sw_qp *qp, struct sw_receive *receive,
                     const struct sw_inbound *message);

/* How the receive of a message ends that is refused by `verdict`. IBV_WC_SUCCESS: not at all, it is
 * for the next message (an unreliable one is lost, and a queue's own receive is not used up). */
enum ibv_wc_status sw_receive_refusal(const struct sw_qp *qp, enum sw_verdict verdict);

/* Its completion: it is held no more. */
void sw_receive_complete(struct sw_qp *qp, struct sw_receive *receive,
                         const struct sw_inbound *message, uint32_t len_bytes,
                         enum ibv_wc_opcode opcode, enum ibv_wc_status status);

/* One that is held for a message of which no more will come, if any: completed as flushed. */
void sw_receive_flush(struct sw_qp *qp, struct sw_receive *receive);

#endif
