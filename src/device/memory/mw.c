/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/memory/mw.h"
#include "device/adopt/adopt.h"

#include <errno.h>
#include <sched.h>
#include <sidewire/flush.h>
#include <stdlib.h>

#include "device/memory/mr_impl.h"
#include "device/memory/view.h"
#include "device/queue/qp_impl.h"

struct sw_mw {
    struct sw_mr slot; /* its place in the table */
    enum ibv_mw_type type;
    struct sw_mr *region; /* NULL: not bound; with the table locked */
    uint32_t qpn;         /* type 2: of the QP it is bound to */
};

_Atomic uint32_t sw_mr_serving[SW_MAX_QP];

#define WINDOW_FLUSH (IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT)
#define WINDOW_REMOTE \
    (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | WINDOW_FLUSH)
/* Local write is what many programs set beside remote write, without meaning. */
#define WINDOW_ACCESS (WINDOW_REMOTE | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED)

static struct sw_pub_mr *mw_entry_of(const struct sw_mw *mw)
{
    return &sw_nic.pub->mrs[mw->slot.index];
}

/* The window or region that a key is of, but for the 8 bits that the program of a window chooses,
 * and whether the key is valid or not. */
static struct sw_mr *mw_slot_of(uint32_t key)
{
    sw_mr_table_assert_locked();
    struct sw_mr *slot = sw_nic.mrs[sw_key_index(key)];
    return slot && slot->key >> 8 == key >> 8 ? slot : NULL;
}

static struct sw_mw *window_of(uint32_t key)
{
    struct sw_mr *slot = mw_slot_of(key);
    return slot && slot->is_window ? (struct sw_mw *)slot : NULL;
}

static struct sw_mr *region_of(uint32_t key)
{
    struct sw_mr *slot = mw_slot_of(key);
    return slot && !slot->is_window && slot->key == key &&
                   sw_nic.pub->mrs[slot->index].kind == SW_PUB_REGION &&
                   atomic_load(&sw_nic.pub->mrs[slot->index].key_word)
               ? slot
               : NULL;
}

void sw_mr_wait_for_serving(const struct sw_qp *own)
{
    for (uint32_t i = 0; i < SW_MAX_QP; i++) {
        uint32_t seen = atomic_load(&sw_mr_serving[i]);
        if (!(seen & 1) || (own && own->index == i))
            continue;
        while (atomic_load(&sw_mr_serving[i]) == seen)
            sched_yield();
    }
}

/* Takes the key away. `own` is the caller's QP, if it has one locked. */
static void unbind_window(struct sw_mw *mw, const struct sw_qp *own)
{
    sw_mr_table_assert_locked();
    atomic_store(&mw_entry_of(mw)->key_word, 0);
    sw_nic.link->quiesce();
    sw_mr_wait_for_serving(own);
    mw->region->windows--;
    mw->region = NULL;
}

int sw_mw_alloc(struct sw_pd *pd, enum ibv_mw_type type, struct sw_mw **out)
{
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
        return -EINVAL;
    struct sw_mw *mw = calloc(1, sizeof(*mw));
    if (!mw)
        return -ENOMEM;
    mw->type = type;
    mw->slot.pd = pd;
    mw->slot.is_window = true;
    int rc = sw_mr_claim(&mw->slot);
    if (rc) {
        free(mw);
        return rc;
    }
    mw->slot.key = sw_mr_draw_key(mw->slot.index);
    sw_pd_ref(pd);
    *out = mw;
    return 0;
}

void sw_mw_dealloc(struct sw_mw *mw)
{
    sw_mr_table_lock();
    if (mw->region)
        unbind_window(mw, NULL);
    sw_mr_table_unlock();
    sw_mr_release(&mw->slot);
    sw_pd_unref(mw->slot.pd);
    free(mw);
}

uint32_t sw_mw_key(const struct sw_mw *mw)
{
    return mw->slot.key;
}

/* A window may give rights that its region does not give peers itself, but none to change memory
 * that may only be read: IBTA Vol1 10.6.7.2.1. */
static bool may_bind(const struct sw_qp *qp, const struct sw_mr *region, const struct sw_wqe *wqe)
{
    const struct sw_pub_mr *entry = &sw_nic.pub->mrs[region->index];
    uint64_t access = wqe->swap, changes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if (region->pd != qp->pd || !(entry->access & IBV_ACCESS_MW_BIND) ||
        access & ~(uint64_t)WINDOW_ACCESS)
        return false;
    if (access & changes && !(entry->access & IBV_ACCESS_LOCAL_WRITE))
        return false;
    if (access & WINDOW_FLUSH & ~(uint64_t)entry->access)
        return false; /* what the region's memory can was found out when it was registered */
    return sw_mr_covers(entry, wqe->remote_addr, wqe->compare_add);
}

/* The parts of a region's extents that lie in [va, va + len). */
static uint32_t cut_extents(const struct sw_pub_mr *region, struct sw_pub_mr *window)
{
    uint32_t count = 0;
    uint64_t end = window->va + window->len_bytes;
    for (uint32_t i = 0; i < region->extent_count; i++) {
        struct sw_pub_extent part = region->extents[i];
        uint64_t part_end = part.va + part.len_bytes;
        uint64_t skip = window->va > part.va ? window->va - part.va : 0;
        if (part_end > end)
            part_end = end;
        if (part.va + skip >= part_end)
            continue;
        part.va += skip;
        part.file_offset += skip;
        part.len_bytes = part_end - part.va;
        window->extents[count++] = part;
    }
    return count;
}

static void publish_window(struct sw_mw *mw, struct sw_qp *qp, const struct sw_wqe *wqe)
{
    sw_mr_table_assert_locked();
    struct sw_pub_mr *entry = mw_entry_of(mw);
    const struct sw_pub_mr *region = &sw_nic.pub->mrs[mw->region->index];
    mw->slot.key = wqe->rkey;
    mw->qpn = mw->type == IBV_MW_TYPE_2 ? qp->qpn : 0;
    entry->kind = mw->type == IBV_MW_TYPE_2 ? SW_PUB_WINDOW_2 : SW_PUB_WINDOW_1;
    entry->qpn = mw->qpn;
    qp->bound_windows |= mw->type == IBV_MW_TYPE_2;
    entry->access = (uint32_t)wqe->swap & WINDOW_REMOTE;
    entry->persist = region->persist;
    entry->pd = qp->pd_id;
    entry->iova = wqe->swap & IBV_ACCESS_ZERO_BASED ? 0 : wqe->remote_addr;
    entry->len_bytes = wqe->compare_add;
    entry->va = region->va + (wqe->remote_addr - region->iova);
    sw_view_shift[mw->slot.index] = sw_view_shift[mw->region->index];
    const uint32_t seen = sw_mr_revocations();
    entry->extent_count = cut_extents(region, entry);
    const enum sw_handed_out handed = sw_handed_out_for(entry->access);
    for (int i = 0; i < mw->region->segment_count; i++)
        sw_segment_grant(mw->region->segments[i], handed);
    atomic_store_explicit(&entry->handed, handed, memory_order_relaxed);
    atomic_store_explicit(&entry->key_word, (uint64_t)sw_mr_generation() << 32 | mw->slot.key,
                          memory_order_release);
    sw_mr_published(mw->slot.index, seen);
}

static bool mw_bind_window(struct sw_qp *qp, const struct sw_wqe *wqe)
{
    struct sw_mw *mw = window_of(wqe->rkey);
    if (!mw || mw->slot.pd != qp->pd)
        return false;
    uint64_t len_bytes = wqe->compare_add;
    if (mw->type == IBV_MW_TYPE_2 && (mw->region || !len_bytes))
        return false; /* o10-37.2.30 and .40: only a free one, and never to nothing */
    struct sw_mr *region = len_bytes ? region_of(wqe->imm) : NULL;
    if (len_bytes && (!region || !may_bind(qp, region, wqe)))
        return false;
    if (mw->region)
        unbind_window(mw, qp);
    if (!region) {
        mw->slot.key = wqe->rkey;
        return true;
    }
    mw->region = region;
    region->windows++;
    publish_window(mw, qp, wqe);
    return true;
}

static bool invalidate_window(struct sw_qp *qp, uint32_t key)
{
    struct sw_mw *mw = window_of(key);
    if (!mw || mw->type != IBV_MW_TYPE_2 || !mw->region || mw->slot.key != key ||
        mw->slot.pd != qp->pd || mw->qpn != qp->qpn)
        return false;
    unbind_window(mw, qp);
    return true;
}

enum ibv_wc_status sw_mw_execute(struct sw_qp *qp, const struct sw_wqe *wqe)
{
    sw_lock_assert_held(&qp->lock);
    sw_mr_table_lock();
    bool good =
        wqe->opcode == IBV_WR_BIND_MW ? mw_bind_window(qp, wqe) : invalidate_window(qp, wqe->imm);
    sw_mr_table_unlock();
    return good ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR;
}

/* A thread that takes a key away waits for what is served, with the table locked. So nobody who
 * serves may wait for the table: the bytes of the message that invalidates lie where they go by
 * now. */
static bool pause_serving(const struct sw_qp *qp)
{
    const bool serves = atomic_load_explicit(&sw_mr_serving[qp->index], memory_order_relaxed) & 1;
    if (serves)
        sw_mr_serve_end(qp->index);
    return serves;
}

enum sw_verdict sw_mw_invalidate_for_peer(struct sw_qp *qp, uint32_t key)
{
    sw_lock_assert_held(&qp->lock);
    const bool serves = pause_serving(qp);
    struct sw_target_qp side = {qp->qpn, qp->pd_id, (uint32_t)qp->attr.qp_access_flags};
    sw_mr_table_lock();
    enum sw_verdict verdict = sw_target_check_invalidate(sw_nic.pub, key, side);
    struct sw_mw *mw = verdict == SW_ACK ? window_of(key) : NULL;
    if (mw) {
        atomic_store(&mw_entry_of(mw)->key_word, 0);
        mw->region->windows--;
        mw->region = NULL;
    }
    sw_mr_table_unlock();
    if (serves)
        sw_mr_serve_begin(qp->index);
    return verdict;
}

void sw_mw_forget_qp(const struct sw_qp *qp)
{
    sw_mr_table_lock();
    for (uint32_t i = 0; qp->bound_windows && i < SW_MAX_MR; i++) {
        struct sw_mr *slot = sw_nic.mrs[i];
        struct sw_mw *mw = slot && slot->is_window ? (struct sw_mw *)slot : NULL;
        if (mw && mw->region && mw->qpn == qp->qpn)
            unbind_window(mw, NULL);
    }
    sw_mr_table_unlock();
}
