/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults on purpose on the direct link, which has no packets to lose: each request counts as the
 * packets it would be at the path's MTU, and is let pass, held back or lost as they would be. A
 * fault that a reliable connection would recover from takes it some time; unreliable messages are
 * lost. docs/faults.md says what a user may expect.
 */
#ifndef SW_LINK_DIRECT_SEND_FAULT_GATE_H
#define SW_LINK_DIRECT_SEND_FAULT_GATE_H

#include "link/direct/bind/step.h"

struct sw_direct_qp;
struct sw_qp;
struct sw_wqe;

struct sw_fault_gate;
extern struct sw_fault_gate *sw_fault_gates; /* one for each QP; NULL: no faults are asked for */

/* Again in a forked child. */
int sw_fault_gate_start(void);
/* The QP begins a connection. */
void sw_fault_gate_reset(const struct sw_qp *qp);

/* Whether the request may start: DONE it may; BLOCKED, LOST or FAILED as for its execution. Inside
 * an access section. */
enum sw_step sw_fault_gate_pass(struct sw_qp *qp, struct sw_direct_qp *d, const struct sw_wqe *wqe,
                                uint32_t position);

/* The same for a datagram; false: not yet. *copies is 0 where it is lost, 2 where it is doubled. */
bool sw_fault_gate_datagram(const struct sw_qp *qp, const struct sw_wqe *wqe, uint32_t position,
                            uint32_t *copies);

#endif
