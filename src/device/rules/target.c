/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/rules/target.h"

#include <sidewire/flush.h>

#include "base/payload.h"

const struct sw_verdict_rule sw_verdict_rules[SW_VERDICT_COUNT] = {
    [SW_ACK] = {"ack", 0x1f, IBV_WC_SUCCESS, false, IBV_WC_SUCCESS, false, -1, false},
    [SW_RNR] = {"rnr", 0x20, IBV_WC_SUCCESS, false, IBV_WC_SUCCESS, false, -1, false},
    [SW_NAK_ACCESS] = {"access", 0x62, IBV_WC_REM_ACCESS_ERR, true, IBV_WC_SUCCESS, true,
                       IBV_EVENT_QP_ACCESS_ERR, false},
    [SW_NAK_INVALID] = {"invalid request", 0x61, IBV_WC_REM_INV_REQ_ERR, true, IBV_WC_LOC_LEN_ERR,
                        true, IBV_EVENT_QP_REQ_ERR, false},
    [SW_NAK_OPERATIONAL] = {"operational", 0x63, IBV_WC_REM_OP_ERR, true, IBV_WC_LOC_PROT_ERR, true,
                            IBV_EVENT_QP_FATAL, false},
    [SW_UNREACHABLE] = {"unreachable", 0, IBV_WC_RETRY_EXC_ERR, true, IBV_WC_SUCCESS, false, -1,
                        false},
    [SW_RNR_EXHAUSTED] = {"rnr retries exhausted", 0x20, IBV_WC_RNR_RETRY_EXC_ERR, true,
                          IBV_WC_SUCCESS, false, -1, false},
};

/* "responder" of an invalid request is for a receive that has left a shared queue already and
 * cannot be used for the next message. A fault in the receiver's own queue is its own (class A). */
const struct sw_verdict_rule sw_verdict_rules_uc[SW_VERDICT_COUNT] = {
    [SW_ACK] = {"ack", 0, IBV_WC_SUCCESS, false, IBV_WC_SUCCESS, false, -1, false},
    [SW_RNR] = {"no receive", 0, IBV_WC_SUCCESS, false, IBV_WC_SUCCESS, false, -1, true},
    [SW_NAK_ACCESS] = {"access", 0, IBV_WC_SUCCESS, false, IBV_WC_SUCCESS, false, -1, true},
    [SW_NAK_INVALID] = {"invalid request", 0, IBV_WC_SUCCESS, false, IBV_WC_LOC_LEN_ERR, false, -1,
                        true},
    [SW_NAK_OPERATIONAL] = {"operational", 0, IBV_WC_SUCCESS, false, IBV_WC_LOC_PROT_ERR, true,
                            IBV_EVENT_QP_FATAL, false},
    [SW_UNREACHABLE] = {"unreachable", 0, IBV_WC_SUCCESS, false, IBV_WC_SUCCESS, false, -1, true},
    [SW_RNR_EXHAUSTED] = {"no receive", 0, IBV_WC_SUCCESS, false, IBV_WC_SUCCESS, false, -1, true},
};

/* What is wrong with a key that the table has as `word`; the bounds are another question. */
static inline enum sw_access_fault key_fault(const struct sw_pub_mr *mr, uint64_t word,
                                             uint32_t key, uint32_t need, struct sw_target_qp qp)
{
    if (word == 0 || (uint32_t)word != key)
        return SW_ACCESS_FAULT_KEY;
    if (mr->pd != qp.pd || (mr->qpn && mr->qpn != qp.qpn))
        return SW_ACCESS_FAULT_OWNER;
    return (mr->access & need) == need ? SW_ACCESS_FAULT_NONE : SW_ACCESS_FAULT_RIGHTS;
}

/* All but the bounds. */
static inline enum sw_verdict find_key(const struct sw_pub *pub, uint32_t key, uint32_t need,
                                       struct sw_target_qp qp, const struct sw_pub_mr **out,
                                       uint64_t *word)
{
    if ((qp.access & need) != need)
        return SW_NAK_INVALID; /* the QP does not admit the operation at all: IBTA Vol1 9.7.4.1.4 */
    const struct sw_pub_mr *mr = &pub->mrs[sw_key_index(key)];
    uint64_t seen = atomic_load_explicit(&mr->key_word, memory_order_acquire);
    if (key_fault(mr, seen, key, need, qp) != SW_ACCESS_FAULT_NONE)
        return SW_NAK_ACCESS;
    *out = mr;
    *word = seen;
    return SW_ACK;
}

enum sw_access_fault sw_target_fault(const struct sw_pub *pub, uint32_t key, uint64_t addr,
                                     uint64_t len_bytes, uint32_t need, struct sw_target_qp qp)
{
    const struct sw_pub_mr *mr = &pub->mrs[sw_key_index(key)];
    uint64_t seen = atomic_load_explicit(&mr->key_word, memory_order_acquire);
    const enum sw_access_fault fault = key_fault(mr, seen, key, need, qp);
    if (fault != SW_ACCESS_FAULT_NONE)
        return fault;
    if ((qp.access & need) != need)
        return SW_ACCESS_FAULT_RIGHTS;
    return sw_mr_covers(mr, addr, len_bytes) ? SW_ACCESS_FAULT_NONE : SW_ACCESS_FAULT_BOUNDS;
}

enum sw_verdict sw_target_check(const struct sw_pub *pub, uint32_t key, uint64_t addr,
                                uint64_t len_bytes, uint32_t need, struct sw_target_qp qp,
                                const struct sw_pub_mr **out, uint64_t *word)
{
    const struct sw_pub_mr *mr;
    uint64_t seen;
    enum sw_verdict verdict = find_key(pub, key, need, qp, &mr, &seen);
    if (verdict != SW_ACK)
        return verdict;
    if (!sw_mr_covers(mr, addr, len_bytes))
        return SW_NAK_ACCESS;
    *out = mr;
    *word = seen;
    return SW_ACK;
}

struct sw_target_flush sw_target_flush_of(uint32_t key, uint64_t addr, uint64_t len_bytes,
                                          uint64_t how)
{
    return (struct sw_target_flush){.key = key,
                                    .addr = addr,
                                    .len_bytes = len_bytes,
                                    .type = (uint8_t)how,
                                    .whole_region = how >> 8 == IBV_FLUSH_MR};
}

enum sw_verdict sw_target_check_flush(const struct sw_pub *pub, struct sw_target_flush *flush,
                                      struct sw_target_qp qp, const struct sw_pub_mr **out)
{
    uint32_t need = (flush->type & IBV_FLUSH_GLOBAL ? IBV_ACCESS_FLUSH_GLOBAL : 0) |
                    (flush->type & IBV_FLUSH_PERSISTENT ? IBV_ACCESS_FLUSH_PERSISTENT : 0);
    const struct sw_pub_mr *mr;
    uint64_t word;
    enum sw_verdict verdict =
        need ? find_key(pub, flush->key, need, qp, &mr, &word) : SW_NAK_INVALID;
    if (verdict != SW_ACK)
        return verdict;
    if (flush->whole_region) {
        flush->addr = mr->iova;
        flush->len_bytes = mr->len_bytes;
    } else if (!sw_mr_covers(mr, flush->addr, flush->len_bytes)) {
        return SW_NAK_ACCESS;
    }
    *out = mr;
    return SW_ACK;
}

enum sw_verdict sw_target_check_invalidate(const struct sw_pub *pub, uint32_t key,
                                           struct sw_target_qp qp)
{
    const struct sw_pub_mr *mr = &pub->mrs[sw_key_index(key)];
    uint64_t seen = atomic_load_explicit(&mr->key_word, memory_order_acquire);
    bool known = seen != 0 && (uint32_t)seen == key;
    bool may = mr->kind == SW_PUB_WINDOW_2 && mr->qpn == qp.qpn && mr->pd == qp.pd;
    return known && may ? SW_ACK : SW_NAK_ACCESS;
}

SW_UNSEEN uint64_t sw_target_atomic(uint64_t *word, uint8_t opcode, uint64_t compare_add,
                                    uint64_t swap)
{
    if (opcode == IBV_WR_ATOMIC_WRITE) {
        /* One store, and no exchange: a card's memory takes no locked instruction. */
        __atomic_store_n(word, compare_add, __ATOMIC_RELEASE);
        atomic_thread_fence(memory_order_seq_cst);
        return 0;
    }
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        return __atomic_fetch_add(word, compare_add, __ATOMIC_SEQ_CST);
    __atomic_compare_exchange_n(word, &compare_add, swap, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return compare_add;
}

uint32_t sw_target_need(enum ibv_wr_opcode opcode)
{
    if (opcode == IBV_WR_RDMA_READ)
        return IBV_ACCESS_REMOTE_READ;
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        return IBV_ACCESS_REMOTE_ATOMIC;
    return IBV_ACCESS_REMOTE_WRITE;
}
