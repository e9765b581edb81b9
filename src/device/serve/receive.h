/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The receive of a message that is coming in, whichever link brings it: taken with the first part
 * of the message, held while the other parts come, and given back by one completion. With the QP
 * locked.
 *
 *     if (!sw_receive_take(qp, &receive, &message))
 *         return SW_RNR;
 *     verdict = sw_receive_place(qp, &receive, &message, &demand);
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

/* A part of a SEND, whose receive is taken: its bytes, and with the last of them the key that it
 * invalidates. The faults in the order of device/serve/execute.h. */
static inline enum sw_verdict sw_receive_place(struct sw_qp *qp, const struct sw_receive *receive,
                                               const struct sw_inbound *message,
                                               const struct sw_demand *demand)
{
    const enum sw_verdict verdict =
        sw_execute_fill(&receive->claim, demand->offset, demand->payload, demand->len_bytes);
    return verdict == SW_ACK && demand->last ? sw_execute_invalidate(qp, message, demand->inv_rkey)
                                             : verdict;
}

/* How the receive of a message ends that is refused by `verdict`. IBV_WC_SUCCESS: not at all, it is
 * for the next message (an unreliable one is lost, and a queue's own receive is not used up). */
enum ibv_wc_status sw_receive_refusal(const struct sw_qp *qp, enum sw_verdict verdict);

/* Its completion: it is held no more. */
void sw_receive_complete(struct sw_qp *qp, struct sw_receive *receive,
                         const struct sw_inbound *message, uint32_t len_bytes,
                         enum ibv_wc_opcode opcode, enum ibv_wc_status status);

/* One that is held for a message of which no more will come, if any: completed as flushed. */
void sw_receive_flush(struct sw_qp *qp, struct sw_receive *receive);

/*
 * Short messages that follow each other to one queue of receives: the completion queue is locked
 * once for all of them, and the queue, too, if it is a shared one. Only while nothing is out of the
 * ordinary. The rest is left to what is above: no receive, or one whose first element is too short;
 * a limit event; a completion queue that is full or armed.
 */
#define SW_RECEIVE_RUN_MOST 16u /* messages: a post to the queue waits for the end of it */
struct sw_receive_run {
    struct sw_srq *srq; /* NULL: the queue pair's own receives */
    struct sw_rq *rq;
    struct sw_cq *cq;
    uint32_t room; /* completions that the queue takes */
    bool is_solicited, any;
};
/* `srq`: NULL for the QP's own receives. Until sw_receive_run_end() the QP, too, stays locked. */
void sw_receive_run_begin(struct sw_qp *qp, struct sw_srq *srq, struct sw_receive_run *run);
/* Where the next message goes; NULL: that is for sw_receive_take(). */
uint8_t *sw_receive_run_at(const struct sw_receive_run *run, uint32_t len_bytes);
/* It is there: takes the receive, which was posted as *wr_id, and begins its completion, for the
 * caller to fill. */
struct ibv_wc *sw_receive_run_pass(struct sw_receive_run *run, uint64_t *wr_id);
void sw_receive_run_publish(struct sw_receive_run *run, bool is_solicited);
/* Both, of a message as connections have them. */
void sw_receive_run_complete(const struct sw_qp *qp, struct sw_receive_run *run,
                             const struct sw_inbound *message, uint32_t len_bytes);
void sw_receive_run_end(struct sw_receive_run *run);

#endif
