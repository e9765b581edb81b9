/* SPDX-License-Identifier: BSD-2-Clause */
/* Contexts: what ibv_open_device returns, and the operations that the inline functions of
 * <infiniband/verbs.h> call through it. */
#ifndef SW_VERBS_CONTEXT_H
#define SW_VERBS_CONTEXT_H

#include "verbs/object.h"

/* NULL with errno. */
struct ibv_context *sw_verbs_context_open(struct sw_verbs_device *device);
/* Drops one reference; the last one closes the device. */
void sw_verbs_context_put(struct ibv_context *context);
int sw_verbs_open_contexts(void);
/* Whether a descriptor is the cmd_fd of a context of ours, in whatever process, and of which
 * device.
 */
bool sw_verbs_is_cmd_fd(int fd, char device[IBV_SYSFS_NAME_MAX]);

/* Operations, named as the fields of struct ibv_context_ops and struct verbs_context that they
 * fill. */
int sw_verbs_query_device_ex(struct ibv_context *context,
                             const struct ibv_query_device_ex_input *input,
                             struct ibv_device_attr_ex *attr, size_t attr_size);
int sw_verbs_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
                        size_t attr_len);
struct ibv_cq_ex *sw_verbs_create_cq_ex(struct ibv_context *context,
                                        struct ibv_cq_init_attr_ex *attr);
struct ibv_td *sw_verbs_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int sw_verbs_dealloc_td(struct ibv_td *td);
struct ibv_pd *sw_verbs_alloc_parent_domain(struct ibv_context *context,
                                            struct ibv_parent_domain_init_attr *attr);
int sw_verbs_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);
int sw_verbs_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int sw_verbs_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int sw_verbs_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_srq *sw_verbs_create_srq_ex(struct ibv_context *context,
                                       struct ibv_srq_init_attr_ex *attr);
int sw_verbs_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num);
int sw_verbs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
                           struct ibv_recv_wr **bad_wr);
struct ibv_qp *sw_verbs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int sw_verbs_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);
struct ibv_mr *sw_verbs_alloc_null_mr(struct ibv_pd *pd);
int sw_verbs_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                       struct ibv_sge *sg_list, uint32_t num_sge);
struct ibv_dm *sw_verbs_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int sw_verbs_free_dm(struct ibv_dm *dm);
struct ibv_mr *sw_verbs_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset,
                                  size_t len_bytes, unsigned int access);
struct ibv_mw *sw_verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int sw_verbs_dealloc_mw(struct ibv_mw *mw);
int sw_verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int sw_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int sw_verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* Fills every operation that is not built yet with a function that says EOPNOTSUPP. */
void sw_verbs_fill_unsupported(struct verbs_context *verbs);

#endif
