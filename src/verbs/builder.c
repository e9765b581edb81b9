/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each operation describes its request in the QP's own ibv_send_wr; the data setter that follows
 * completes the description and hands it to the device at once, because the program may reuse its
 * scatter list and inline buffers when the setter returns. An operation without a data setter (a
 * message of zero length) is handed over when the next one starts or at ibv_wr_complete.
 *
 * ibv_wr_start takes the device's send lock and ibv_wr_complete or ibv_wr_abort releases it, so the
 * state needs no lock of its own.
 */
#include "verbs/builder.h"

#include <errno.h>
#include <sidewire/flush.h>
#include <stdlib.h>
#include <string.h>

#include "device/queue/sq.h"

#define RC_SEND_OPS                                                                                \
    (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |        \
     IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | \
     IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV |                          \
     IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_ATOMIC_WRITE |             \
     IBV_QP_EX_WITH_FLUSH)

#define XRC_SEND_OPS (RC_SEND_OPS & ~(IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW))

#define UC_SEND_OPS                                                                           \
    (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |   \
     IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV | \
     IBV_QP_EX_WITH_BIND_MW)
#define IWARP_SEND_OPS                                                            \
    (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ | \
     IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)
#define UD_SEND_OPS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)

static inline struct sw_verbs_qp *qp_of(struct ibv_qp_ex *ex)
{
    return (struct sw_verbs_qp *)ex;
}

static inline void note_misuse(struct sw_verbs_qp *qp, int error)
{
    if (!qp->wr_error)
        qp->wr_error = error;
}

static inline struct ibv_send_wr *begin_wr(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
    struct sw_verbs_qp *qp = qp_of(ex);
    if (SW_UNLIKELY(qp->wr_open))
        sw_qp_batch_add(qp->dev, &qp->wr);
    qp->wr_open = true;
    qp->wr.wr_id = ex->wr_id;
    qp->wr.send_flags = ex->wr_flags & ~(unsigned int)IBV_SEND_INLINE;
    qp->wr.opcode = opcode;
    qp->wr.num_sge = 0;
    qp->wr.wr.ud.ah = NULL;
    return &qp->wr;
}

static inline void begin_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
                              uint64_t remote_addr)
{
    struct ibv_send_wr *wr = begin_wr(ex, opcode);
    wr->wr.rdma.remote_addr = remote_addr;
    wr->wr.rdma.rkey = rkey;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
    begin_rdma(ex, IBV_WR_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                              __be32 imm_data)
{
    begin_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr);
    qp_of(ex)->wr.imm_data = imm_data;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
    begin_rdma(ex, IBV_WR_RDMA_READ, rkey, remote_addr);
}

static void wr_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
                      uint64_t remote_addr, uint64_t compare_add, uint64_t swap)
{
    struct ibv_send_wr *wr = begin_wr(ex, opcode);
    wr->wr.atomic.remote_addr = remote_addr;
    wr->wr.atomic.compare_add = compare_add;
    wr->wr.atomic.swap = swap;
    wr->wr.atomic.rkey = rkey;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                              uint64_t compare, uint64_t swap)
{
    wr_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                                uint64_t add)
{
    wr_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add, 0);
}

static void wr_send(struct ibv_qp_ex *ex)
{
    begin_wr(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
    begin_wr(ex, IBV_WR_SEND_WITH_IMM)->imm_data = imm_data;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
    begin_wr(ex, IBV_WR_SEND_WITH_INV)->invalidate_rkey = invalidate_rkey;
}

/* Eight bytes, taken at once: no data setter follows. */
static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                            const void *value)
{
    struct sw_verbs_qp *qp = qp_of(ex);
    begin_rdma(ex, IBV_WR_ATOMIC_WRITE, rkey, remote_addr);
    memcpy(&qp->atomic_word, value, sizeof(qp->atomic_word));
    qp->sge = (struct ibv_sge){.addr = (uintptr_t)&qp->atomic_word, .length = 8};
    qp->wr.sg_list = &qp->sge;
    qp->wr.num_sge = 1;
    qp->wr.send_flags |= IBV_SEND_INLINE;
}

/* Complete as it is, and not a struct ibv_send_wr: handed over at once. */
static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, size_t len,
                     uint8_t type, uint8_t level)
{
    struct sw_verbs_qp *qp = qp_of(ex);
    if (SW_UNLIKELY(qp->wr_open))
        sw_qp_batch_add(qp->dev, &qp->wr);
    qp->wr_open = false;
    const struct sw_flush_wr wr = {.wr_id = ex->wr_id,
                                   .send_flags = ex->wr_flags,
                                   .rkey = rkey,
                                   .remote_addr = remote_addr,
                                   .len_bytes = len,
                                   .type = type,
                                   .level = level};
    sw_qp_batch_flush(qp->dev, &wr);
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
    begin_wr(ex, IBV_WR_LOCAL_INV)->invalidate_rkey = invalidate_rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
                       const struct ibv_mw_bind_info *bind_info)
{
    struct ibv_send_wr *wr = begin_wr(ex, IBV_WR_BIND_MW);
    wr->bind_mw.mw = mw;
    wr->bind_mw.rkey = rkey;
    wr->bind_mw.bind_info = *bind_info;
}

/* Operations that the QP was not created with, or that are not built. */

static void wr_no_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
                          const struct ibv_mw_bind_info *bind_info)
{
    (void)mw;
    (void)rkey;
    (void)bind_info;
    note_misuse(qp_of(ex), EOPNOTSUPP);
}

static void wr_no_key(struct ibv_qp_ex *ex, uint32_t key)
{
    (void)key;
    note_misuse(qp_of(ex), EOPNOTSUPP);
}

static void wr_no_rdma(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
    (void)rkey;
    (void)remote_addr;
    note_misuse(qp_of(ex), EOPNOTSUPP);
}

static void wr_no_rdma_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                           __be32 imm_data)
{
    (void)imm_data;
    wr_no_rdma(ex, rkey, remote_addr);
}

static void wr_no_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                          uint64_t compare, uint64_t swap)
{
    (void)compare;
    (void)swap;
    wr_no_rdma(ex, rkey, remote_addr);
}

static void wr_no_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t add)
{
    (void)add;
    wr_no_rdma(ex, rkey, remote_addr);
}

static void wr_no_send(struct ibv_qp_ex *ex)
{
    note_misuse(qp_of(ex), EOPNOTSUPP);
}

static void wr_no_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
    (void)imm_data;
    note_misuse(qp_of(ex), EOPNOTSUPP);
}

static void wr_no_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
    (void)hdr;
    (void)hdr_sz;
    (void)mss;
    note_misuse(qp_of(ex), EOPNOTSUPP);
}

static void wr_no_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                               const void *value)
{
    (void)value;
    wr_no_rdma(ex, rkey, remote_addr);
}

static void wr_no_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, size_t len,
                        uint8_t type, uint8_t level)
{
    (void)len;
    (void)type;
    (void)level;
    wr_no_rdma(ex, rkey, remote_addr);
}

/* Sets the address of the last request, whether or not it has its data yet. */
static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn,
                           uint32_t remote_qkey)
{
    struct sw_verbs_qp *qp = qp_of(ex);
    if (qp->wr_open) {
        qp->wr.wr.ud.ah = ah;
        qp->wr.wr.ud.remote_qpn = remote_qpn;
        qp->wr.wr.ud.remote_qkey = remote_qkey;
    } else {
        sw_qp_batch_route(qp->dev, ah, remote_qpn, remote_qkey);
    }
}

static void wr_no_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn,
                          uint32_t remote_qkey)
{
    (void)ah;
    (void)remote_qpn;
    (void)remote_qkey;
    note_misuse(qp_of(ex), EINVAL);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t remote_srqn)
{
    struct sw_verbs_qp *qp = qp_of(ex);
    qp->wr.qp_type.xrc.remote_srqn = remote_srqn;
    if (!qp->wr_open) /* setters come in any order */
        sw_qp_batch_name_srq(qp->dev, remote_srqn);
}

static void wr_no_xrc_srqn(struct ibv_qp_ex *ex, uint32_t remote_srqn)
{
    (void)remote_srqn;
    note_misuse(qp_of(ex), EINVAL);
}

/* Data setters. */

static inline void builder_hand_over(struct sw_verbs_qp *qp, struct ibv_sge *sg_list, int num_sge)
{
    if (SW_UNLIKELY(!qp->wr_open)) {
        note_misuse(qp, EINVAL);
        return;
    }
    qp->wr_open = false;
    qp->wr.sg_list = sg_list;
    qp->wr.num_sge = num_sge;
    sw_qp_batch_add(qp->dev, &qp->wr);
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
    struct sw_verbs_qp *qp = qp_of(ex);
    qp->sge = (struct ibv_sge){.addr = addr, .length = length, .lkey = lkey};
    builder_hand_over(qp, &qp->sge, 1);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *sg_list)
{
    struct sw_verbs_qp *qp = qp_of(ex);
    if (SW_UNLIKELY(num_sge > qp->cap.max_send_sge)) {
        note_misuse(qp, EINVAL);
        return;
    }
    builder_hand_over(qp, (struct ibv_sge *)(uintptr_t)sg_list, (int)num_sge); /* only read */
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
    struct sw_verbs_qp *qp = qp_of(ex);
    if (SW_UNLIKELY(length > qp->cap.max_inline_data)) {
        note_misuse(qp, EINVAL);
        return;
    }
    qp->sge = (struct ibv_sge){.addr = (uintptr_t)addr, .length = (uint32_t)length};
    qp->wr.send_flags |= IBV_SEND_INLINE;
    builder_hand_over(qp, &qp->sge, 1);
}

/* A list of buffers may be longer than the QP's scatter list, so it is gathered first. */
static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf,
                                    const struct ibv_data_buf *buf_list)
{
    struct sw_verbs_qp *qp = qp_of(ex);
    size_t total = 0;
    for (size_t i = 0; i < num_buf; i++) {
        if (SW_UNLIKELY(buf_list[i].length > qp->cap.max_inline_data - total)) {
            note_misuse(qp, EINVAL);
            return;
        }
        if (buf_list[i].length)
            memcpy(qp->inline_room + total, buf_list[i].addr, buf_list[i].length);
        total += buf_list[i].length;
    }
    wr_set_inline_data(ex, qp->inline_room, total);
}

static void wr_start(struct ibv_qp_ex *ex)
{
    struct sw_verbs_qp *qp = qp_of(ex);
    sw_qp_batch_begin(qp->dev);
    qp->wr_open = false;
    qp->wr_error = 0;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
    struct sw_verbs_qp *qp = qp_of(ex);
    const int error = qp->wr_error;
    if (SW_UNLIKELY(error)) {
        sw_qp_batch_abort(qp->dev);
        return error;
    }
    if (SW_UNLIKELY(qp->wr_open))
        sw_qp_batch_add(qp->dev, &qp->wr);
    return -sw_qp_batch_commit(qp->dev);
}

static void wr_abort(struct ibv_qp_ex *ex)
{
    sw_qp_batch_abort(qp_of(ex)->dev);
}

int sw_builder_check(const struct ibv_context *context, enum ibv_qp_type type, uint64_t send_ops)
{
    uint64_t offered = 0;
    if (context->device->transport_type == IBV_TRANSPORT_IWARP)
        offered = type == IBV_QPT_RC ? IWARP_SEND_OPS : 0;
    else if (type == IBV_QPT_RC)
        offered = RC_SEND_OPS;
    else if (type == IBV_QPT_XRC_SEND)
        offered = XRC_SEND_OPS;
    else if (type == IBV_QPT_UC)
        offered = UC_SEND_OPS;
    else if (type == IBV_QPT_UD)
        offered = UD_SEND_OPS;
    return send_ops & ~offered ? -EOPNOTSUPP : 0;
}

/* Newer headers have it next in struct ibv_qp_ex. */
static void set_wr_flush(struct ibv_qp_ex *ex, sidewire_flush_fn flush)
{
    memcpy((char *)&ex->wr_atomic_write + sizeof(ex->wr_atomic_write), &flush, sizeof(flush));
}

static void install_refusals(struct ibv_qp_ex *ex)
{
    ex->wr_atomic_cmp_swp = wr_no_cmp_swp;
    ex->wr_atomic_fetch_add = wr_no_fetch_add;
    ex->wr_bind_mw = wr_no_bind_mw;
    ex->wr_local_inv = wr_no_key;
    ex->wr_rdma_read = wr_no_rdma;
    ex->wr_rdma_write = wr_no_rdma;
    ex->wr_rdma_write_imm = wr_no_rdma_imm;
    ex->wr_send = wr_no_send;
    ex->wr_send_imm = wr_no_send_imm;
    ex->wr_send_inv = wr_no_key;
    ex->wr_send_tso = wr_no_tso;
    ex->wr_set_ud_addr = wr_no_ud_addr;
    ex->wr_set_xrc_srqn = wr_no_xrc_srqn;
    ex->wr_atomic_write = wr_no_atomic_write;
    set_wr_flush(ex, wr_no_flush);
}

static void install_operations(struct ibv_qp_ex *ex, uint64_t send_ops)
{
    if (send_ops & IBV_QP_EX_WITH_RDMA_WRITE)
        ex->wr_rdma_write = wr_rdma_write;
    if (send_ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
        ex->wr_rdma_write_imm = wr_rdma_write_imm;
    if (send_ops & IBV_QP_EX_WITH_SEND)
        ex->wr_send = wr_send;
    if (send_ops & IBV_QP_EX_WITH_SEND_WITH_IMM)
        ex->wr_send_imm = wr_send_imm;
    if (send_ops & IBV_QP_EX_WITH_RDMA_READ)
        ex->wr_rdma_read = wr_rdma_read;
    if (send_ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)
        ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    if (send_ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
        ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
    if (send_ops & IBV_QP_EX_WITH_SEND_WITH_INV)
        ex->wr_send_inv = wr_send_inv;
    if (send_ops & IBV_QP_EX_WITH_ATOMIC_WRITE)
        ex->wr_atomic_write = wr_atomic_write;
    if (send_ops & IBV_QP_EX_WITH_FLUSH)
        set_wr_flush(ex, wr_flush);
    if (send_ops & IBV_QP_EX_WITH_LOCAL_INV)
        ex->wr_local_inv = wr_local_inv;
    if (send_ops & IBV_QP_EX_WITH_BIND_MW)
        ex->wr_bind_mw = wr_bind_mw;
}

int sw_builder_init(struct sw_verbs_qp *qp, uint64_t send_ops)
{
    if (qp->cap.max_inline_data) {
        qp->inline_room = malloc(qp->cap.max_inline_data);
        if (!qp->inline_room)
            return -ENOMEM;
    }
    struct ibv_qp_ex *ex = &qp->ex;
    install_refusals(ex);
    install_operations(ex, send_ops);
    if (qp->ibv.qp_type == IBV_QPT_UD)
        ex->wr_set_ud_addr = wr_set_ud_addr;
    if (qp->ibv.qp_type == IBV_QPT_XRC_SEND)
        ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
    ex->wr_set_sge = wr_set_sge;
    ex->wr_set_sge_list = wr_set_sge_list;
    ex->wr_set_inline_data = wr_set_inline_data;
    ex->wr_set_inline_data_list = wr_set_inline_data_list;
    ex->wr_start = wr_start;
    ex->wr_complete = wr_complete;
    ex->wr_abort = wr_abort;
    qp->is_ex = true;
    return 0;
}

void sw_builder_fini(struct sw_verbs_qp *qp)
{
    free(qp->inline_room);
}
