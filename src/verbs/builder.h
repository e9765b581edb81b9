/* SPDX-License-Identifier: BSD-2-Clause */
/* The posting interface of struct ibv_qp_ex (ibv_wr_start ... ibv_wr_complete). */
#ifndef SW_VERBS_BUILDER_H
#define SW_VERBS_BUILDER_H

#include "verbs/object.h"

/* 0 if a QP of this type can offer all of `send_ops` (IBV_QP_EX_WITH_*), else -EOPNOTSUPP. */
int sw_builder_check(const struct ibv_context *context, enum ibv_qp_type type, uint64_t send_ops);

/* Installs the functions: the operations of `send_ops`, and for all others one that makes
 * ibv_wr_complete fail. 0 or -ENOMEM. */
int sw_builder_init(struct sw_verbs_qp *qp, uint64_t send_ops);
void sw_builder_fini(struct sw_verbs_qp *qp);

#endif
