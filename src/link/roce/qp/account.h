/* SPDX-License-Identifier: BSD-2-Clause */
/* What a connection has counted. */
#ifndef SW_LINK_ROCE_QP_ACCOUNT_H
#define SW_LINK_ROCE_QP_ACCOUNT_H

struct sw_roce_qp;

/* Brings the device's counters up to date; with the QP locked. */
void sw_roce_account(struct sw_roce_qp *r);

#endif
