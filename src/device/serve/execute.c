/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/serve/execute.h"

#include <string.h>

#include "base/card_memory.h"
#include "base/fault.h"
#include "base/in_order.h"
#include "base/payload.h"
#include "device/memory/mr_impl.h"
#include "device/memory/mw.h"
#include "device/memory/view.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "device/queue/xrc_impl.h"

/* One store each, of a place that need not be aligned. */
struct word8 {
    uint64_t value;
} __attribute__((packed));
struct word4 {
    uint32_t value;
} __attribute__((packed));

SW_UNSEEN void sw_copy_ordered(uint8_t *to, const uint8_t *from, uint64_t len_bytes)
{
    if (sw_card_memory_has(to)) {
        sw_card_memory_copy(to, from, len_bytes);
        return;
    }
    /* Programs poll the last byte of a WRITE: it must not become visible before the others. The
     * compiler barrier and x86's store order (a release fence elsewhere) see to it; memcpy alone
     * may store the end first. */
    if (len_bytes > 8) {
        sw_payload_copy(to, from, len_bytes - 8);
        atomic_thread_fence(memory_order_release);
        to += len_bytes - 8;
        from += len_bytes - 8;
        len_bytes = 8;
    }
    if (len_bytes == 8) {
        uint64_t value;
        memcpy(&value, from, 8);
        ((volatile struct word8 *)to)->value = value;
    } else if (len_bytes == 4) {
        uint32_t value;
        memcpy(&value, from, 4);
        ((volatile struct word4 *)to)->value = value;
    } else {
        for (uint64_t i = 0; i < len_bytes; i++)
            ((volatile uint8_t *)to)[i] = from[i];
    }
}

bool sw_execute_name_srq(struct sw_qp *qp, uint32_t srq_num, struct sw_inbound *message)
{
    sw_lock_assert_held(&qp->lock);
    message->srq = sw_xrcd_srq_of(qp, srq_num);
    if (message->srq)
        message->pd = message->srq->rq.pd;
    return message->srq;
}

bool sw_execute_take_recv(struct sw_qp *qp, const struct sw_inbound *message,
                          struct sw_recv_claim *out)
{
    sw_lock_assert_held(&qp->lock);
    return message->srq ? sw_srq_take(message->srq, out) : sw_qp_take_recv(qp, out);
}

enum sw_verdict sw_execute_fill(const struct sw_recv_claim *claim, uint64_t at, const void *from,
                                uint32_t len_bytes)
{
    const enum sw_verdict verdict = sw_target_check_room(claim->len_bytes, at, len_bytes);
    if (verdict != SW_ACK)
        return verdict;
    return sw_recv_scatter(claim->pd, claim->sges, claim->sge_count, at, from, len_bytes) ==
                   IBV_WC_SUCCESS
               ? SW_ACK
               : SW_NAK_OPERATIONAL;
}

enum sw_verdict sw_execute_invalidate(struct sw_qp *qp, const struct sw_inbound *message,
                                      uint32_t rkey)
{
    sw_lock_assert_held(&qp->lock);
    return message->has_inv ? sw_mw_invalidate_for_peer(qp, rkey) : SW_ACK;
}

/* Field by field: a struct that is made elsewhere and then copied is read, 16 bytes at a time,
 * before its stores of 4 and 8 bytes are done, which a processor waits for. */
void sw_execute_completion(const struct sw_qp *qp, const struct sw_inbound *message, uint64_t wr_id,
                           uint32_t len_bytes, enum ibv_wc_opcode opcode, enum ibv_wc_status status,
                           struct ibv_wc *out)
{
    out->wr_id = wr_id;
    out->status = status;
    out->opcode = opcode;
    out->vendor_err = 0;
    out->byte_len = len_bytes;
    out->imm_data = message->imm;
    out->qp_num = qp->shown_qpn;
    out->src_qp = qp->dest_qpn;
    out->wc_flags = message->has_imm ? IBV_WC_WITH_IMM : message->has_inv ? IBV_WC_WITH_INV : 0;
    out->pkey_index = 0;
    out->slid = 0;
    out->sl = 0;
    out->dlid_path_bits = 0;
}

void sw_execute_complete(struct sw_qp *qp, const struct sw_inbound *message,
                         const struct sw_recv_claim *claim, uint32_t len_bytes,
                         enum ibv_wc_opcode opcode, enum ibv_wc_status status)
{
    sw_lock_assert_held(&qp->lock);
    struct ibv_wc wc;
    sw_execute_completion(qp, message, claim->wr_id, len_bytes, opcode, status, &wc);
    if (message->srq)
        sw_cq_complete_recv(message->srq->cq, &wc, message->is_solicited);
    else
        sw_qp_complete_recv(qp, &wc, message->is_solicited);
}

enum sw_verdict sw_execute_check(struct sw_qp *qp, const struct sw_inbound *message, uint32_t need,
                                 uint32_t rkey, uint64_t addr, uint64_t len_bytes, uint8_t **va)
{
    sw_lock_assert_held(&qp->lock);
    const struct sw_target_qp own = {qp->qpn, message->pd, (uint32_t)qp->attr.qp_access_flags};
    const struct sw_pub_mr *mr;
    uint64_t word;
    if (len_bytes == 0)
        return sw_target_check_empty(need, own.access);
    enum sw_verdict verdict =
        sw_target_check(sw_nic.pub, rkey, addr, len_bytes, need, own, &mr, &word);
    if (verdict == SW_ACK)
        *va = sw_view_at(sw_nic.pub, mr, addr);
    return verdict;
}

static uint32_t execute_need_of(const struct sw_demand *demand)
{
    if (demand->kind == SW_DEMAND_WRITE || demand->kind == SW_DEMAND_ATOMIC_WRITE)
        return IBV_ACCESS_REMOTE_WRITE;
    return demand->kind == SW_DEMAND_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_ATOMIC;
}

enum sw_access_fault sw_execute_fault_of(const struct sw_qp *qp, const struct sw_demand *demand)
{
    const struct sw_target_qp own = {qp->qpn, qp->pd_id, (uint32_t)qp->attr.qp_access_flags};
    const uint64_t len = demand->kind == SW_DEMAND_WRITE ? demand->len_bytes : demand->total;
    if (demand->kind == SW_DEMAND_SEND)
        return SW_ACCESS_FAULT_NONE;
    if (demand->kind == SW_DEMAND_FLUSH)
        return SW_ACCESS_FAULT_RIGHTS; /* which of its faults makes no difference to the peer */
    return sw_target_fault(sw_nic.pub, demand->rkey, demand->addr, len, execute_need_of(demand),
                           own);
}

void sw_copy_all_ordered(uint8_t *to, const uint8_t *from, uint64_t len_bytes)
{
    if (sw_card_memory_has(to))
        sw_card_memory_copy(to, from, len_bytes);
    else
        sw_copy_in_order(to, from, len_bytes);
}

static void copy_pieces(uint8_t *to, const struct sw_pieces *pieces, bool last, bool in_order)
{
    const uint8_t *from = pieces->from;
    for (uint32_t i = 0; i < pieces->count; i++) {
        if (in_order)
            sw_copy_all_ordered(to, from, pieces->len_bytes);
        else if (last)
            sw_copy_ordered(to, from, pieces->len_bytes);
        else
            sw_payload_copy(to, from, pieces->len_bytes);
        to += pieces->len_bytes;
        from += pieces->stride_bytes;
    }
}

enum sw_verdict sw_execute_write(struct sw_qp *qp, const struct sw_inbound *message, uint32_t rkey,
                                 uint64_t addr, const struct sw_pieces *pieces, bool last)
{
    const uint64_t total = (uint64_t)pieces->len_bytes * pieces->count;
    uint8_t *base;
    enum sw_verdict verdict =
        sw_execute_check(qp, message, IBV_ACCESS_REMOTE_WRITE, rkey, addr, total, &base);
    if (verdict != SW_ACK || !total)
        return verdict;
    for (int i = 0; i < SW_FAULT_TRIES; i++) {
        const uint64_t mark = sw_fault_mark();
        copy_pieces(base, pieces, last, qp->in_order);
        const enum sw_fault fault = sw_fault_judge(mark, base, total);
        if (__builtin_expect(fault != SW_FAULT_AGAIN, 1))
            return fault == SW_FAULT_NONE ? SW_ACK : SW_NAK_ACCESS;
    }
    return SW_NAK_ACCESS;
}

enum sw_verdict sw_execute_atomic(struct sw_qp *qp, const struct sw_inbound *message,
                                  uint8_t opcode, uint32_t rkey, uint64_t addr,
                                  uint64_t compare_add, uint64_t swap, uint64_t *original)
{
    sw_lock_assert_held(&qp->lock);
    uint8_t *at;
    uint32_t need =
        opcode == IBV_WR_ATOMIC_WRITE ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_ATOMIC;
    if (addr & 7)
        return SW_NAK_INVALID;
    enum sw_verdict verdict = sw_execute_check(qp, message, need, rkey, addr, 8, &at);
    if (verdict == SW_ACK && (uintptr_t)at & 7)
        verdict = SW_NAK_INVALID; /* its iova is aligned, the memory is not */
    if (verdict != SW_ACK)
        return verdict;
    const uint64_t mark = sw_fault_mark();
    *original = sw_target_atomic((uint64_t *)(void *)at, opcode, compare_add, swap);
    /* One that may have happened is not made again. */
    return sw_fault_judge(mark, at, 8) == SW_FAULT_NONE ? SW_ACK : SW_NAK_ACCESS;
}
