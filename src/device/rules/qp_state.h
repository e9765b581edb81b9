/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The QP state table of IBTA Vol 1 10.3.1 and 11.2.5.2: which transitions exist for each transport
 * and which attributes each requires and allows. Pure.
 */
#ifndef SW_DEVICE_RULES_QP_STATE_H
#define SW_DEVICE_RULES_QP_STATE_H

#include <infiniband/verbs.h>
#include <stdbool.h>

/* True if a QP of `type` may go from `cur` to `next` with exactly the attributes in `mask`
 * (IBV_QP_STATE and IBV_QP_CUR_STATE included as given). Covers RC, UC, UD, XRC_SEND, XRC_RECV.
 * Values are not checked here. */
bool sw_qp_transition_ok(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next,
                         int mask);

/* `mask` without the attributes of the side that an XRC QP has not: programs set them as for RC,
 * and Linux ignores them. */
int sw_qp_mask_of_type(enum ibv_qp_type type, int mask);

#endif
