/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs as verbs sees them. 0 or negative errno throughout. */
#ifndef SW_DEVICE_QUEUE_QP_H
#define SW_DEVICE_QUEUE_QP_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_context;
struct sw_cq;
struct sw_pd;
struct sw_qp;
struct sw_srq;
struct sw_xrcd;

struct sw_qp_init {
    enum ibv_qp_type type; /* those of device/rules/qp_type.h; others -EOPNOTSUPP */
    struct sw_pd *pd;
    struct sw_cq *send_cq;
    struct sw_cq *recv_cq;
    struct sw_srq *srq;    /* or NULL */
    struct sw_xrcd *xrcd;  /* IBV_QPT_XRC_RECV: instead of PD and CQs */
    struct ibv_qp_cap cap; /* asked for; sw_qp_create writes what was granted */
    bool sq_sig_all;
    bool blocks_own_multicast; /* UD: what it sends to a group does not come back to it */
    void *owner;               /* the verbs object, for events */
};

int sw_qp_create(struct sw_context *ctx, struct sw_qp_init *init, struct sw_qp **out);
/* Gives back what sw_qp_create() or sw_xrcd_open_qp() gave; the last one removes the QP's unpolled
 * completions from its CQs. -EBUSY: attached to a multicast group. */
int sw_qp_destroy(struct sw_qp *qp);
/* From here on its events belong to `ctx` and `owner`. */
void sw_qp_set_owner(struct sw_qp *qp, struct sw_context *ctx, void *owner);
uint32_t sw_qp_num(const struct sw_qp *qp);
enum ibv_qp_state sw_qp_state(const struct sw_qp *qp);
/* Whether the bytes of remote WRITEs are seen in ascending order in the memory that they go to. The
 * question makes it so, by every link that the queue pair may use, from here on to its end: nobody
 * else is to pay for it. False: it cannot be had for such requests. */
bool sw_qp_keep_order(struct sw_qp *qp, enum ibv_wr_opcode opcode);
/* The state table with required and optional attributes (device/rules/qp_state.h) is applied
 * here. */
int sw_qp_modify(struct sw_qp *qp, const struct ibv_qp_attr *attr, int mask);
/* The rate limit and (0: the device's own choice) how much may go at once, where a limit may be set
 * by modify without a change of state. */
int sw_qp_set_rate(struct sw_qp *qp, uint32_t rate_kbps, uint32_t burst_bytes);
void sw_qp_query(struct sw_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_cap *cap);

/* bad_wr is set to the first that was not taken. -ENOMEM: queue full; -EINVAL: state, opcode, sge
 * count, inline size. */
int sw_qp_post_send(struct sw_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int sw_qp_post_recv(struct sw_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/*
 * The builder interface. begin takes the send lock; `add` hands over one complete request (its
 * sg_list or inline buffers must live until `add` returns; it is executed or queued at commit, so
 * inline data is copied now); commit posts all since begin, abort drops them. An error of `add` is
 * remembered and returned by commit (positive list semantics: nothing is posted then).
 */
void sw_qp_batch_begin(struct sw_qp *qp);
void sw_qp_batch_add(struct sw_qp *qp, const struct ibv_send_wr *wr);
struct sw_flush_wr;
void sw_qp_batch_flush(struct sw_qp *qp, const struct sw_flush_wr *wr);
/* The destination of the request added last (a datagram), where it had none. */
void sw_qp_batch_route(struct sw_qp *qp, struct ibv_ah *ah, uint32_t dest_qpn, uint32_t qkey);
int sw_qp_batch_commit(struct sw_qp *qp);
void sw_qp_batch_abort(struct sw_qp *qp);
/* The SRQ that the request added last is for (XRC), where that is told after its data. */
void sw_qp_batch_name_srq(struct sw_qp *qp, uint32_t srq_num);

#endif
