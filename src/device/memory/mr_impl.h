/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside of memory regions, and the check of local keys, for device/ and links. */
#ifndef SW_DEVICE_MEMORY_MR_IMPL_H
#define SW_DEVICE_MEMORY_MR_IMPL_H

#include "device/memory/mr.h"
#include "device/memory/view.h"
#include "device/nic/context_impl.h"
#include "device/nic/nic.h"
#include "device/rules/target.h"

struct sw_segment;

struct sw_mr {
    struct sw_pd *pd;
    uint32_t index;
    uint32_t key;
    bool is_window;   /* of a struct sw_mw */
    uint32_t windows; /* bound to it; with the table locked */
    int segment_count;
    struct sw_segment *segments[SW_MR_EXTENTS];
};

/* sw_nic.mrs, mr_draw and what binds windows to regions. Taken after any other lock of the device;
 * may be held while peers' accesses are waited for, so not between sw_mr_serve_begin() and _end().
 */
void sw_mr_table_lock(void);
void sw_mr_table_unlock(void);
void sw_mr_table_assert_locked(void);
int sw_mr_claim(struct sw_mr *mr); /* gives it an index; -ENOMEM: the table is full */
void sw_mr_release(struct sw_mr *mr);
uint32_t sw_mr_generation(void);         /* for the next key word */
uint32_t sw_mr_draw_key(uint32_t index); /* another one than before */

/* Cuts all extents short of [va, va + len): from then on peers do not map it. Without a lock, as an
 * allocator may wait for it. An entry that is being published meanwhile is cut by its publisher,
 * which took sw_mr_revocations() before it looked for extents. */
void sw_mr_revoke(uint64_t va, uint64_t len_bytes);
uint32_t sw_mr_revocations(void);
void sw_mr_published(uint32_t index, uint32_t revocations);

/*
 * Odd while this process executes, for a peer of the QP with this index, a request that names a key
 * of ours: with the QP locked. A thread that takes a key away while holding another QP cannot take
 * that lock, and waits here instead.
 */
extern _Atomic uint32_t sw_mr_serving[SW_MAX_QP];

static inline void sw_mr_serve_begin(uint32_t qp_index)
{
    atomic_fetch_add(&sw_mr_serving[qp_index], 1); /* before any key word is read */
}
static inline void sw_mr_serve_end(uint32_t qp_index)
{
    /* Only who has the QP locked writes to it. */
    const uint32_t now = atomic_load_explicit(&sw_mr_serving[qp_index], memory_order_relaxed);
    atomic_store_explicit(&sw_mr_serving[qp_index], now + 1, memory_order_release);
}
/* Returns when what this process executes for peers by keys that were valid before is over. `own`
 * is the caller's QP, if it has one locked. */
void sw_mr_wait_for_serving(const struct sw_qp *own);

/* A receive is posted into the region: peers may place messages there from now on. */
void sw_mr_receive_into(uint32_t key);

/* In a forked child: copies every region's entry to the child's tables, without shareable parts. */
void sw_mr_fork_child(const struct sw_pub *parent, struct sw_pub *fresh);

/* The same as below for an element of a null region. */
bool sw_null_resolve(uint32_t pd, const struct ibv_sge *sge, uint32_t need, uint8_t **va);

/* Checks one local scatter/gather element; on success *va is where the bytes are in this process.
 */
static inline bool sw_sge_resolve(uint32_t pd, const struct ibv_sge *sge, uint32_t need,
                                  uint8_t **va)
{
    const struct sw_pub_mr *mr = &sw_nic.pub->mrs[sw_key_index(sge->lkey)];
    uint64_t word = atomic_load_explicit(&mr->key_word, memory_order_acquire);
    const uint32_t access = mr->access;
    need |= SW_PUB_LOCAL_USE;
    if (__builtin_expect(word == 0 || (uint32_t)word != sge->lkey || mr->pd != pd ||
                             (access & need) != need || !sw_mr_covers(mr, sge->addr, sge->length),
                         0))
        return sw_null_resolve(pd, sge, need, va);
    *va = access & SW_PUB_STEADY ? (uint8_t *)(uintptr_t)(mr->va + (sge->addr - mr->iova))
                                 : sw_view_at(sw_nic.pub, mr, sge->addr);
    return true;
}

#endif
