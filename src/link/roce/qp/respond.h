/* SPDX-License-Identifier: BSD-2-Clause */
/* What a peer's packets ask for. With the QP locked. */
#ifndef SW_LINK_ROCE_QP_RESPOND_H
#define SW_LINK_ROCE_QP_RESPOND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "link/roce/qp/qp.h"
#include "wire/run.h"

/* Returns how many packets of the run were dealt with: all, if it is plain, or the first. The QP
 * may have failed by that. */
uint32_t sw_roce_respond(struct sw_roce_qp *r, const struct sw_packet_run *run, uint64_t now_ns);
/* Goes on with a demand that was left, and with what waits behind it. While somebody receives, that
 * is left for later. */
enum sw_roce_outcome sw_roce_unpark(struct sw_roce_qp *r, uint64_t now_ns);
/* UC: what came early has waited for what is missing for long enough, and that is not among what
 * waits to be received; rx_lock held. NULL: the connection has ended, and nothing waits. */
void sw_roce_run_gaps(struct sw_roce_qp *r, uint64_t now_ns);
/* The bytes of a READ response; false: they may not be read any more. */
bool sw_roce_read(struct sw_roce_qp *r, const struct sw_emission *emission, struct iovec *out);
void sw_roce_drop_claim(struct sw_roce_qp *r);

#endif
