/* SPDX-License-Identifier: BSD-2-Clause */
/* The send queue of a connection, between its program and the requester. With the QP locked. */
#ifndef SW_LINK_ROCE_QP_REQUEST_H
#define SW_LINK_ROCE_QP_REQUEST_H

#include <infiniband/verbs.h>

#include "link/roce/qp/qp.h"

enum sw_roce_outcome sw_roce_take_progress(struct sw_roce_qp *r,
                                           const struct sw_progress *progress);
/* Gives requests to the requester, executes local ones in their turn. */
enum sw_roce_outcome sw_roce_feed(struct sw_roce_qp *r);
/* After the requester has sent: what of the send queue is under way, and what is complete. */
enum sw_roce_outcome sw_roce_settle(struct sw_roce_qp *r);
/* Fails the request at the head of the send queue. */
enum sw_roce_outcome sw_roce_fail_request(struct sw_roce_qp *r, enum ibv_wc_status status);

#endif
