/* SPDX-License-Identifier: BSD-2-Clause */
/* What the machines of a connection want sent: into batches of the port, in the order and grouping
 * that its peer takes in fastest. With the QP locked. */
#ifndef SW_LINK_ROCE_QP_EMIT_H
#define SW_LINK_ROCE_QP_EMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "link/roce/qp/qp.h"

/* Sends what the machines want sent, a bounded part, and takes in what has ended by that. */
enum sw_roce_outcome sw_roce_emit(struct sw_roce_qp *r, uint64_t now_ns);
/* The ACK that waits leaves now, whatever becomes of this QP: the peer's message was good, and
 * hardware would have said so by now. */
void sw_roce_emit_ack(struct sw_roce_qp *r);
/* Whether there is nothing to say but an ACK, or the NAK of a gap that may close by itself. */
bool sw_roce_only_acks(const struct sw_roce_qp *r);
/* When somebody must look again, if the program does not. A connection that only waits for the peer
 * has a timer, and is looked at by nobody before. `more`: at once. */
void sw_roce_plan_timer(struct sw_roce_qp *r, bool more);

#endif
