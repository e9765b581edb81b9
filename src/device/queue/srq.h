/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues. Positive errno is not used here: 0 or negative errno. */
#ifndef SW_DEVICE_QUEUE_SRQ_H
#define SW_DEVICE_QUEUE_SRQ_H

#include <infiniband/verbs.h>

struct sw_context;
struct sw_pd;
struct sw_srq;

/* attr is updated with what was granted. */
int sw_srq_create(struct sw_pd *pd, struct ibv_srq_attr *attr, void *owner, struct sw_srq **out);
int sw_srq_destroy(struct sw_srq *srq);
int sw_srq_modify(struct sw_srq *srq, const struct ibv_srq_attr *attr, int mask);
void sw_srq_query(struct sw_srq *srq, struct ibv_srq_attr *out);
int sw_srq_post_recv(struct sw_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

#endif
