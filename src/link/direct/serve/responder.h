/* SPDX-License-Identifier: BSD-2-Clause */
/* Receiving: delivers messages to receives, and executes what the initiator could not execute
 * itself. */
#ifndef SW_LINK_DIRECT_SERVE_RESPONDER_H
#define SW_LINK_DIRECT_SERVE_RESPONDER_H

#include <stdbool.h>

struct sw_direct_qp;
struct sw_qp;

/* Serves what the peer has sent, at most a batch of it. Returns whether there was anything. Opens
 * its own access sections. */
bool sw_serve_run(struct sw_qp *qp, struct sw_direct_qp *d);

#endif
