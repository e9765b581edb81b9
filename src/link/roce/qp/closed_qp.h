/* SPDX-License-Identifier: BSD-2-Clause */
/* What is left of a connection that this side has ended (closed_qp.c). With the QP locked. */
#ifndef SW_LINK_ROCE_QP_CLOSED_QP_H
#define SW_LINK_ROCE_QP_CLOSED_QP_H

#include <stdint.h>

struct sw_roce_qp;

/* What is left of a connection at its end. NULL: nothing. */
struct sw_roce_qp *sw_closed_qp_of(const struct sw_roce_qp *r, uint64_t now_ns);
/* Before a packet for it is looked at. */
void sw_closed_qp_age(struct sw_roce_qp *r, uint64_t now_ns);

#endif
