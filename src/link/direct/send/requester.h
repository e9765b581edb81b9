/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends: brings the requests of a queue pair on their way, and collects what became of them. */
#ifndef SW_LINK_DIRECT_SEND_REQUESTER_H
#define SW_LINK_DIRECT_SEND_REQUESTER_H

#include <stdbool.h>

struct sw_direct_qp;
struct sw_qp;

/* Goes on with all requests of the queue. Opens its own access section. */
void sw_direct_send_run(struct sw_qp *qp, struct sw_direct_qp *d);
/* The same for a caller that has just posted: leaves answers to pollers and to the engine. */
void sw_direct_send_push(struct sw_qp *qp, struct sw_direct_qp *d);
/* Takes the answers that have come, and starts nothing. False: one was a refusal, and the QP has
 * failed. */
bool sw_direct_send_collect(struct sw_qp *qp, struct sw_direct_qp *d);

/* Leaves a section in which requests were started: tells what was moved, and rings the peer where
 * it waits for an event of what was sent. */
void sw_direct_send_leave(struct sw_direct_qp *d);

#endif
