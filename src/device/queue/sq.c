/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/sq.h"

#include <assert.h>
#include <errno.h>
#include <sidewire/flush.h>
#include <stdlib.h>
#include <string.h>

#include "device/memory/buffer.h"
#include "device/queue/counters.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "device/rules/device_limits.h"

#define INLINE_PER_SGE_BYTES 16u

int sw_sq_init(struct sw_sq *sq, struct sw_pd *pd, struct ibv_qp_cap *cap, bool sig_all,
               uint32_t opcodes)
{
    uint32_t entries = 4;
    while (entries < cap->max_send_wr)
        entries <<= 1;
    if (cap->max_send_sge == 0)
        cap->max_send_sge = 1;
    /* A program that asks for no inline data gets as much as the elements would take, as from
     * rdma_rxe: programs count on it (rdma_xclient). */
    if (cap->max_send_wr && cap->max_inline_data < cap->max_send_sge * INLINE_PER_SGE_BYTES)
        cap->max_inline_data = cap->max_send_sge * INLINE_PER_SGE_BYTES;
    cap->max_inline_data = (cap->max_inline_data + 63) & ~63u;
    sq->wqes = sw_buffer_alloc(pd, entries * sizeof(*sq->wqes), SW_BUFFER_QP);
    sq->sges =
        sw_buffer_alloc(pd, (size_t)entries * cap->max_send_sge * sizeof(*sq->sges), SW_BUFFER_QP);
    sq->inline_bytes =
        cap->max_inline_data
            ? sw_buffer_alloc(pd, (size_t)entries * cap->max_inline_data, SW_BUFFER_QP)
            : NULL;
    if (!sq->wqes || !sq->sges || (cap->max_inline_data && !sq->inline_bytes)) {
        sw_sq_fini(sq);
        return -ENOMEM;
    }
    memset(sq->wqes, 0, entries * sizeof(*sq->wqes));
    sq->mask = entries - 1;
    sq->wr_max = entries;
    sq->sge_max = cap->max_send_sge;
    sq->inline_max = cap->max_inline_data;
    sq->sig_all = sig_all;
    sq->opcodes = opcodes;
    cap->max_send_wr = entries;
    return 0;
}

int sw_sq_init_routes(struct sw_sq *sq)
{
    sq->routes = calloc(sq->mask + 1, sizeof(*sq->routes));
    return sq->routes ? 0 : -ENOMEM;
}

void sw_sq_fini(struct sw_sq *sq)
{
    free(sq->routes);
    sq->routes = NULL;
    sw_buffer_free(sq->wqes);
    sw_buffer_free(sq->sges);
    sw_buffer_free(sq->inline_bytes);
    sq->wqes = NULL;
    sq->sges = NULL;
    sq->inline_bytes = NULL;
}

void sw_sq_reset(struct sw_sq *sq)
{
    sq->head = sq->next = sq->tail = 0;
    atomic_store(&sq->polled, 0);
}

void sw_sq_rewind(struct sw_sq *sq)
{
    for (uint32_t i = sq->head; i != sq->tail; i++) {
        struct sw_wqe *wqe = sw_sq_at(sq, i);
        wqe->via_ring = wqe->is_announced = 0;
        wqe->done_bytes = 0;
    }
    sq->next = sq->head;
}

/* What each opcode carries. An opcode that is not listed is not supported on any queue pair. */
enum {
    CARRY_DATA = 1,
    CARRY_REMOTE = 2,
    CARRY_ATOMIC = 4,
    CARRY_IMM = 8,
    INTO_LOCAL = 16,
    LISTED = 32,
    LOCAL = 64 /* nothing but this process's own keys */
};
static const uint8_t opcode_carries[] = {
    [IBV_WR_RDMA_WRITE] = LISTED | CARRY_DATA | CARRY_REMOTE,
    [IBV_WR_RDMA_WRITE_WITH_IMM] = LISTED | CARRY_DATA | CARRY_REMOTE | CARRY_IMM,
    [IBV_WR_SEND] = LISTED | CARRY_DATA,
    [IBV_WR_SEND_WITH_IMM] = LISTED | CARRY_DATA | CARRY_IMM,
    [IBV_WR_SEND_WITH_INV] = LISTED | CARRY_DATA | CARRY_IMM,
    [IBV_WR_RDMA_READ] = LISTED | CARRY_DATA | CARRY_REMOTE | INTO_LOCAL,
    [IBV_WR_ATOMIC_CMP_AND_SWP] = LISTED | CARRY_DATA | CARRY_ATOMIC | INTO_LOCAL,
    [IBV_WR_ATOMIC_FETCH_AND_ADD] = LISTED | CARRY_DATA | CARRY_ATOMIC | INTO_LOCAL,
    [IBV_WR_ATOMIC_WRITE] = LISTED | CARRY_DATA | CARRY_REMOTE,
    [IBV_WR_FLUSH] = LISTED, /* but only sw_sq_append_flush() takes it */
    [IBV_WR_LOCAL_INV] = LISTED | LOCAL,
    [IBV_WR_BIND_MW] = LISTED | LOCAL,
};

void sw_sq_set_route(struct sw_sq *sq, uint32_t position, struct ibv_ah *ibv, uint32_t dest_qpn,
                     uint32_t qkey)
{
    struct sw_route *route = sw_sq_route(sq, position);
    struct sw_ah *ah = (struct sw_ah *)ibv;
    route->is_set = ah != NULL;
    if (!ah)
        return;
    route->path = ah->path;
    route->pd_id = ah->pd_id;
    route->dest_qpn = dest_qpn;
    route->qkey = qkey;
    route->is_local = sw_ah_is_local(ah);
}

bool sw_sq_is_routed(struct sw_sq *sq, uint32_t position)
{
    for (; position != sq->tail; position++)
        if (!sw_sq_route(sq, position)->is_set)
            return false;
    return true;
}

static int copy_inline(struct sw_sq *sq, struct sw_wqe *wqe, const struct ibv_send_wr *wr)
{
    uint8_t *to = sw_sq_inline(sq, sq->tail);
    uint64_t total = 0;
    for (int i = 0; i < wr->num_sge; i++)
        total += wr->sg_list[i].length;
    if (wr->opcode == IBV_WR_ATOMIC_WRITE) { /* always has room for its word */
        if (total != 8)
            return -EINVAL;
        to = (uint8_t *)&wqe->compare_add;
    } else if (total > sq->inline_max) {
        return -EINVAL;
    }
    for (int i = 0; i < wr->num_sge; i++) {
        memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        to += wr->sg_list[i].length;
    }
    wqe->len_bytes = (uint32_t)total;
    wqe->sge_count = 0;
    wqe->flags |= SW_WQE_INLINE;
    return 0;
}

/* A bind's region, address, length and rights go where other requests have theirs for the peer. */
static int fill_local(struct sw_wqe *wqe, const struct ibv_send_wr *wr)
{
    wqe->len_bytes = 0;
    wqe->sge_count = 0;
    if (wr->opcode == IBV_WR_LOCAL_INV) {
        wqe->imm = wr->invalidate_rkey;
        return 0;
    }
    const struct ibv_mw *mw = wr->bind_mw.mw;
    const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
    if (!mw || mw->rkey >> 8 != wr->bind_mw.rkey >> 8 || (info->length && !info->mr))
        return -EINVAL; /* a program chooses the low 8 bits of a key, no more */
    wqe->rkey = wr->bind_mw.rkey;
    wqe->imm = info->mr ? info->mr->lkey : 0;
    wqe->remote_addr = info->addr;
    wqe->compare_add = info->length;
    wqe->swap = info->mw_access_flags & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
    return 0;
}

/* What requests of all kinds have. */
static inline struct sw_wqe *begin_entry(struct sw_sq *sq, uint64_t wr_id, unsigned int opcode,
                                         unsigned int flags)
{
    struct sw_wqe *wqe = sw_sq_at(sq, sq->tail);
    wqe->wr_id = wr_id;
    wqe->opcode = (uint8_t)opcode;
    wqe->flags = (uint8_t)((flags & IBV_SEND_SIGNALED || sq->sig_all ? SW_WQE_SIGNALED : 0) |
                           (flags & IBV_SEND_FENCE ? SW_WQE_FENCE : 0) |
                           (flags & IBV_SEND_SOLICITED ? SW_WQE_SOLICITED : 0));
    wqe->state = SW_WQE_WAITING;
    wqe->via_ring = wqe->is_announced = 0;
    wqe->done_bytes = 0;
    return wqe;
}

/* The error for an opcode that this queue does not take: built for other types, not built, or none
 * at all. */
static int refuse_opcode(unsigned int opcode)
{
    bool built = opcode < sizeof(opcode_carries) && opcode_carries[opcode];
    return built || opcode > IBV_WR_DRIVER1 ? -EINVAL : -EOPNOTSUPP;
}

int sw_sq_append(struct sw_sq *sq, const struct ibv_send_wr *wr)
{
    if (__builtin_expect(sw_sq_is_full(sq), 0))
        return -ENOMEM;
    unsigned int opcode = wr->opcode;
    if (__builtin_expect(opcode >= 32 || !(sq->opcodes >> opcode & 1), 0))
        return refuse_opcode(opcode);
    unsigned int carries = opcode_carries[opcode];
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > sq->sge_max)
        return -EINVAL;

    unsigned int flags = wr->send_flags;
    struct sw_wqe *wqe = begin_entry(sq, wr->wr_id, opcode, flags);
    wqe->imm = carries & CARRY_IMM ? wr->imm_data : 0;
    if (__builtin_expect(sq->names_srq, 0))
        wqe->srq_num = wr->qp_type.xrc.remote_srqn;
    if (carries & CARRY_REMOTE) {
        wqe->remote_addr = wr->wr.rdma.remote_addr;
        wqe->rkey = wr->wr.rdma.rkey;
    } else if (carries & CARRY_ATOMIC) {
        wqe->remote_addr = wr->wr.atomic.remote_addr;
        wqe->rkey = wr->wr.atomic.rkey;
        wqe->compare_add = wr->wr.atomic.compare_add;
        wqe->swap = wr->wr.atomic.swap;
    }
    if (__builtin_expect(carries & LOCAL, 0)) {
        int rc = fill_local(wqe, wr);
        if (rc)
            return rc;
    } else if (flags & IBV_SEND_INLINE) {
        if (carries & INTO_LOCAL)
            return -EINVAL;
        int rc = copy_inline(sq, wqe, wr);
        if (rc)
            return rc;
    } else {
        struct ibv_sge *sges = sw_sq_sges(sq, sq->tail);
        uint64_t total = 0;
        for (int i = 0; i < wr->num_sge; i++) {
            sges[i] = wr->sg_list[i];
            total += wr->sg_list[i].length;
        }
        if (total > SW_MAX_MSG_BYTES ||
            ((carries & CARRY_ATOMIC || opcode == IBV_WR_ATOMIC_WRITE) && total != 8))
            return -EINVAL;
        wqe->len_bytes = (uint32_t)total;
        wqe->sge_count = (uint8_t)wr->num_sge;
    }
    if (sq->routes)
        sw_sq_set_route(sq, sq->tail, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
    sq->tail++;
    return 0;
}

void sw_sq_append_executed(struct sw_sq *sq, const struct ibv_send_wr *wr, enum sw_wqe_state state)
{
    struct sw_wqe *wqe = begin_entry(sq, wr->wr_id, wr->opcode, wr->send_flags);
    wqe->state = (uint8_t)state;
    wqe->len_bytes = wqe->done_bytes = wr->sg_list->length;
    sq->next = ++sq->tail;
}

/* A flush moves no bytes: what it is about stands where atomics have their operands. */
int sw_sq_append_flush(struct sw_sq *sq, const struct sw_flush_wr *wr)
{
    const unsigned int types = IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT;
    if (sw_sq_is_full(sq))
        return -ENOMEM;
    if (!wr->type || wr->type & ~types || wr->level > IBV_FLUSH_MR ||
        (wr->level == IBV_FLUSH_RANGE && wr->len_bytes > SW_MAX_MSG_BYTES))
        return -EINVAL;
    struct sw_wqe *wqe = begin_entry(sq, wr->wr_id, IBV_WR_FLUSH, wr->send_flags);
    wqe->remote_addr = wr->remote_addr;
    wqe->rkey = wr->rkey;
    wqe->compare_add = wr->len_bytes;
    wqe->swap = wr->type | (uint64_t)wr->level << 8;
    wqe->imm = 0;
    wqe->len_bytes = 0;
    wqe->sge_count = 0;
    sq->tail++;
    return 0;
}

struct sw_target_flush sw_wqe_flush(const struct sw_wqe *wqe)
{
    return sw_target_flush_of(wqe->rkey, wqe->remote_addr, wqe->compare_add, wqe->swap);
}

static const uint8_t wc_opcodes[] = {
    [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
    [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
    [IBV_WR_SEND] = IBV_WC_SEND,
    [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
    [IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
    [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
    [IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
    [IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
    [IBV_WR_ATOMIC_WRITE] = IBV_WC_ATOMIC_WRITE,
    [IBV_WR_FLUSH] = IBV_WC_FLUSH,
    [IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV,
    [IBV_WR_BIND_MW] = IBV_WC_BIND_MW,
};

/* What the completion of a request says of it. */
struct completed {
    uint64_t wr_id;
    unsigned int opcode; /* enum ibv_wr_opcode */
    uint32_t len_bytes;
    enum ibv_wc_status status;
};

/* Fills a completion for the request at `position`. */
static inline void fill_send_completion(struct sw_qp *qp, uint32_t position,
                                        struct completed request)
{
    struct sw_cqe *cqe = sw_cq_reserve(qp->send_cq);
    if (!cqe)
        return;
    cqe->wc.wr_id = request.wr_id;
    cqe->wc.status = request.status;
    cqe->wc.opcode = (enum ibv_wc_opcode)wc_opcodes[request.opcode];
    cqe->wc.vendor_err = 0;
    cqe->wc.byte_len = request.len_bytes;
    cqe->wc.imm_data = 0;
    cqe->wc.qp_num = qp->qpn;
    cqe->wc.src_qp = 0;
    cqe->wc.wc_flags = 0;
    cqe->wc.pkey_index = 0;
    cqe->wc.slid = 0;
    cqe->wc.sl = 0;
    cqe->wc.dlid_path_bits = 0;
    cqe->qp = qp;
    cqe->sq_index = position + 1;
    sw_cq_publish(qp->send_cq);
}

static void push_completion(struct sw_qp *qp, uint32_t position, enum ibv_wc_status status)
{
    const struct sw_wqe *wqe = sw_sq_at(&qp->sq, position);
    fill_send_completion(qp, position,
                         (struct completed){wqe->wr_id, wqe->opcode, wqe->len_bytes, status});
}

struct ibv_send_wr *sw_sq_complete_executed(struct sw_qp *qp, struct ibv_send_wr *wr,
                                            uint32_t count)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_sq *sq = &qp->sq;
    assert(sq->head == sq->tail);
    bool locked = false;
    for (uint32_t i = 0; i < count; i++, wr = wr->next) {
        if (!(wr->send_flags & IBV_SEND_SIGNALED) && !sq->sig_all)
            continue;
        if (!locked)
            sw_cq_lock(qp->send_cq);
        locked = true;
        fill_send_completion(
            qp, sq->tail + i,
            (struct completed){wr->wr_id, wr->opcode, wr->sg_list->length, IBV_WC_SUCCESS});
    }
    sq->head = sq->next = sq->tail += count;
    if (locked)
        sw_cq_unlock(qp->send_cq, false);
    return wr;
}

void sw_sq_retire(struct sw_qp *qp, enum ibv_wc_status status)
{
    sw_lock_assert_held(&qp->lock);
    uint32_t position = qp->sq.head;
    if (status != IBV_WC_SUCCESS)
        sw_counter_add_error(qp->ctx->netdev, status, false);
    bool wanted = status != IBV_WC_SUCCESS || sw_sq_at(&qp->sq, position)->flags & SW_WQE_SIGNALED;
    if (wanted) {
        sw_cq_lock(qp->send_cq);
        push_completion(qp, position, status);
    }
    qp->sq.head = position + 1;
    if ((int32_t)(qp->sq.next - qp->sq.head) < 0)
        qp->sq.next = qp->sq.head;
    if (wanted)
        sw_cq_unlock(qp->send_cq, status != IBV_WC_SUCCESS);
}

void sw_sq_retire_run(struct sw_qp *qp, uint32_t count)
{
    sw_lock_assert_held(&qp->lock);
    assert(count <= qp->sq.tail - qp->sq.head);
    bool locked = false;
    uint32_t end = qp->sq.head + count;
    for (uint32_t position = qp->sq.head; position != end; position++) {
        if (!(sw_sq_at(&qp->sq, position)->flags & SW_WQE_SIGNALED))
            continue;
        if (!locked) {
            sw_cq_lock(qp->send_cq);
            locked = true;
        }
        push_completion(qp, position, IBV_WC_SUCCESS);
    }
    qp->sq.head = end;
    if ((int32_t)(qp->sq.next - end) < 0)
        qp->sq.next = end;
    if (locked)
        sw_cq_unlock(qp->send_cq, false);
}
