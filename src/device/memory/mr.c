/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/memory/mr.h"

#include <errno.h>
#include <sidewire/flush.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/random.h"
#include "device/adopt/adopt.h"
#include "device/adopt/vma.h"
#include "device/memory/mr_impl.h"
#include "device/memory/persist.h"
#include "device/memory/sync_job.h"
#include "device/memory/view.h"
#include "device/queue/qp_impl.h"

#define KNOWN_ACCESS                                                             \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND |      \
     IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE |    \
     IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT)

static int check_args(uint64_t va, uint64_t len_bytes, uint64_t iova, unsigned int access)
{
    if (access & ~(unsigned int)KNOWN_ACCESS)
        return -EINVAL;
    if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
        !(access & IBV_ACCESS_LOCAL_WRITE))
        return -EINVAL;
    if (va + len_bytes < va || iova + len_bytes < iova)
        return -EINVAL;
    return 0;
}

/* 0 if the whole range is mapped with the rights that local use needs, else -EFAULT. */
static int check_mapped(uint64_t va, uint64_t len_bytes, unsigned int access, bool *is_shared)
{
    *is_shared = false;
    int need = PROT_READ | (access & IBV_ACCESS_LOCAL_WRITE ? PROT_WRITE : 0);
    struct sw_vma_reader reader;
    struct sw_vma vma;
    if (access & IBV_ACCESS_ON_DEMAND)
        return 0; /* what is there when it is accessed counts */
    if (len_bytes == 0 || sw_vma_open(&reader, false))
        return 0; /* without /proc nothing can be said */
    uint64_t at = va, end = va + len_bytes;
    *is_shared = true;
    while (at < end && sw_vma_next(&reader, at, &vma) == 1 && vma.start <= at &&
           (vma.prot & need) == need) {
        *is_shared &= vma.kind == SW_VMA_SHARED;
        at = vma.end;
    }
    sw_vma_close(&reader);
    return at < end ? -EFAULT : 0;
}

/* How a region is to be made persistent, if it shall be (sw_persist_word()). -EINVAL: its memory
 * cannot be. */
static int check_persist(uint64_t va, uint64_t len_bytes, unsigned int access, uint32_t *persist)
{
    bool wanted = access & IBV_ACCESS_FLUSH_PERSISTENT;
    uint32_t disk = 0;
    const enum sw_persist how = wanted ? sw_persist_of(va, len_bytes, &disk) : SW_PERSIST_NONE;
    *persist = sw_persist_word(how, disk);
    if (!wanted || how != SW_PERSIST_NONE)
        return 0;
    sw_info("region 0x%llx, %llu bytes: refused, its memory is not persistent",
            (unsigned long long)va, (unsigned long long)len_bytes);
    return -EINVAL;
}

/* Whether the range can be a region, and what it is. 0 or a negative errno. */
static int check_memory(uint64_t va, uint64_t len_bytes, unsigned int access, bool *is_shared,
                        uint32_t *persist)
{
    int rc = check_mapped(va, len_bytes, access, is_shared);
    if (!rc)
        rc = check_persist(va, len_bytes, access, persist);
    return !rc && *is_shared
               ? sw_persist_note_cards(va, len_bytes, access & IBV_ACCESS_REMOTE_ATOMIC)
               : rc;
}

/* Before its key is valid. */
static void set_rights(struct sw_mr *mr, unsigned int access, int64_t shift)
{
    sw_view_shift[mr->index] = shift;
    sw_nic.pub->mrs[mr->index].access = access | SW_PUB_LOCAL_USE | (shift ? 0 : SW_PUB_STEADY);
}

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

void sw_mr_table_lock(void)
{
    pthread_mutex_lock(&table_lock);
}

void sw_mr_table_unlock(void)
{
    pthread_mutex_unlock(&table_lock);
}

void sw_mr_table_assert_locked(void)
{
    sw_mutex_assert_held(&table_lock);
}

static int claim_locked(struct sw_mr *mr)
{
    sw_mr_table_assert_locked();
    for (uint32_t tried = 0; tried < sw_draw_all(&sw_nic.mr_draw); tried++) {
        uint32_t index = sw_draw(&sw_nic.mr_draw);
        if (index == 0 || sw_nic.mrs[index])
            continue; /* a key of 0 is never valid */
        sw_nic.mrs[index] = mr;
        mr->index = index;
        sw_view_shift[index] = 0;
        return 0;
    }
    return -ENOMEM;
}

int sw_mr_claim(struct sw_mr *mr)
{
    sw_mr_table_lock();
    int rc = claim_locked(mr);
    sw_mr_table_unlock();
    return rc;
}

void sw_mr_release(struct sw_mr *mr)
{
    sw_mr_table_lock();
    sw_nic.mrs[mr->index] = NULL;
    sw_mr_table_unlock();
}

/* The parts of a range that peers can map, with a reference on each. */
struct parts {
    int count;
    struct sw_extent extents[SW_MR_EXTENTS];
};

static void get_parts(struct parts *parts, uint64_t va, uint64_t len_bytes, unsigned int access)
{
    parts->count = 0;
    if (access & IBV_ACCESS_ON_DEMAND)
        return; /* the program may map other pages there: they are reached by address only */
    enum sw_adopt_reason why = SW_ADOPT_OK;
    parts->count = len_bytes ? sw_adopt_get(va, len_bytes, sw_handed_out_for(access),
                                            parts->extents, SW_MR_EXTENTS, &why)
                             : 0;
    uint64_t mapped_bytes = 0;
    for (int i = 0; i < parts->count; i++)
        mapped_bytes += parts->extents[i].len_bytes;
    sw_info("region 0x%llx, %llu bytes: %llu mappable by peers%s%s", (unsigned long long)va,
            (unsigned long long)len_bytes, (unsigned long long)mapped_bytes,
            mapped_bytes < len_bytes ? "; the rest by cma or ring: " : "",
            mapped_bytes < len_bytes ? sw_adopt_reason_str(why) : "");
}

static void set_parts(struct sw_pub_mr *entry, struct sw_mr *mr, const struct parts *parts)
{
    for (int i = 0; i < parts->count; i++) {
        const struct sw_extent *extent = &parts->extents[i];
        mr->segments[i] = extent->segment;
        entry->extents[i] = (struct sw_pub_extent){
            .va = extent->va,
            .len_bytes = extent->len_bytes,
            .file_offset = extent->offset,
            .segment = sw_segment_id(extent->segment),
        };
    }
    mr->segment_count = parts->count;
    entry->extent_count = (uint32_t)parts->count;
}

/* Before the key is valid, or again while it is. With the table locked, or nobody else's mr. */
static void hand_out(struct sw_pub_mr *entry, const struct sw_mr *mr, enum sw_handed_out handed)
{
    for (int i = 0; i < mr->segment_count; i++)
        sw_segment_grant(mr->segments[i], handed);
    atomic_store_explicit(&entry->handed, handed, memory_order_release);
}

void sw_mr_receive_into(uint32_t key)
{
    const uint32_t index = sw_key_index(key);
    sw_mr_table_lock();
    const struct sw_mr *mr = sw_nic.mrs[index];
    if (mr && mr->key == key && !mr->is_window)
        hand_out(&sw_nic.pub->mrs[index], mr, SW_HANDED_OUT_WRITE);
    sw_mr_table_unlock();
}

uint32_t sw_mr_generation(void)
{
    static atomic_uint generation;
    return atomic_fetch_add(&generation, 1) + 1;
}

static atomic_uint revocations;

static void cut_entry(struct sw_pub_mr *entry, uint64_t va, uint64_t end)
{
    bool cut = false;
    uint64_t word = atomic_load(&entry->key_word);
    for (uint32_t i = 0; word && i < SW_MR_EXTENTS && i < entry->extent_count; i++) {
        struct sw_pub_extent *extent = &entry->extents[i];
        uint64_t len_bytes = __atomic_load_n(&extent->len_bytes, __ATOMIC_RELAXED);
        if (extent->va >= end || extent->va + len_bytes <= va)
            continue;
        uint64_t left = va > extent->va ? va - extent->va : 0;
        __atomic_store_n(&extent->len_bytes, left, __ATOMIC_RELAXED);
        cut = true;
    }
    /* A process that remembers the key looks at its extents again. If it is withdrawn now, all the
     * better. */
    if (cut)
        atomic_compare_exchange_strong(&entry->key_word, &word,
                                       (uint64_t)sw_mr_generation() << 32 | (uint32_t)word);
}

void sw_mr_revoke(uint64_t va, uint64_t len_bytes)
{
    if (!sw_nic.pub)
        return;
    atomic_fetch_add(&revocations, 1);
    for (uint32_t i = 0; i < SW_MAX_MR; i++) {
        if (__atomic_load_n(&sw_nic.mrs[i], __ATOMIC_RELAXED))
            cut_entry(&sw_nic.pub->mrs[i], va, va + len_bytes);
    }
}

uint32_t sw_mr_revocations(void)
{
    return atomic_load(&revocations);
}

void sw_mr_published(uint32_t index, uint32_t seen)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&revocations) != seen)
        cut_entry(&sw_nic.pub->mrs[index], 0, UINT64_MAX);
}

uint32_t sw_mr_draw_key(uint32_t index)
{
    struct sw_pub_mr *entry = &sw_nic.pub->mrs[index];
    uint32_t key;
    do
        key = sw_key_make(index, (uint32_t)sw_random64());
    while (key == entry->key_before);
    entry->key_before = key;
    return key;
}

int sw_mr_reg(struct sw_pd *pd, void *addr, uint64_t len_bytes, uint64_t iova, unsigned int access,
              struct sw_mr **out)
{
    uint64_t va = (uintptr_t)addr;
    if (access & IBV_ACCESS_ZERO_BASED)
        iova = 0;
    int rc = check_args(va, len_bytes, iova, access);
    if (rc)
        return rc;
    uint32_t persist = SW_PERSIST_NONE;
    bool is_shared;
    rc = check_memory(va, len_bytes, access, &is_shared, &persist);
    if (rc)
        return rc;
    struct sw_mr *mr = calloc(1, sizeof(*mr));
    if (!mr)
        return -ENOMEM;
    rc = sw_mr_claim(mr);
    if (rc) {
        free(mr);
        return rc;
    }
    mr->pd = pd;
    sw_pd_ref(pd);

    struct sw_pub_mr *entry = &sw_nic.pub->mrs[mr->index];
    uint32_t gen = sw_mr_generation();
    mr->key = sw_mr_draw_key(mr->index);
    set_rights(mr, access, is_shared ? sw_view_make(va, len_bytes) : 0);
    entry->kind = SW_PUB_REGION;
    entry->qpn = 0;
    entry->persist = persist;
    entry->pd = pd->id;
    entry->iova = iova;
    entry->len_bytes = len_bytes;
    entry->va = va;
    atomic_store_explicit(&sw_nic.pub->header.mr_last, sw_draw_block_last(mr->index),
                          memory_order_relaxed);
    struct parts parts; /* of local-only regions too: a peer's SEND may be placed into them */
    const uint32_t seen = sw_mr_revocations();
    get_parts(&parts, va, len_bytes, access);
    set_parts(entry, mr, &parts);
    hand_out(entry, mr, sw_handed_out_for(access));
    atomic_store_explicit(&entry->key_word, (uint64_t)gen << 32 | mr->key, memory_order_release);
    sw_mr_published(mr->index, seen);
    *out = mr;
    return 0;
}

/* One at a time, so that of two regions sharing a segment one surely sees the last reference go. */
static pthread_mutex_t last_reference = PTHREAD_MUTEX_INITIALIZER;

static void put_segments(struct sw_segment *const *segments, int count)
{
    pthread_mutex_lock(&last_reference);
    for (int i = 0; i < count; i++) {
        uint32_t id = sw_segment_id(segments[i]);
        sw_adopt_put(segments[i]);
        struct sw_segment *still = sw_segment_find(id);
        if (still)
            sw_adopt_put(still);
        else
            sw_nic.link->segment_gone(id);
    }
    pthread_mutex_unlock(&last_reference);
}

/* Returns when no access by the entry's key goes on, and none can begin. -EBUSY: windows are bound
 * to the region, and stay in use (IBTA Vol1 11.2.10.5). */
static int withdraw_mr(struct sw_mr *mr)
{
    struct sw_pub_mr *entry = &sw_nic.pub->mrs[mr->index];
    sw_mr_table_lock();
    bool busy = mr->windows;
    if (!busy)
        atomic_store_explicit(&entry->key_word, 0, memory_order_seq_cst);
    sw_mr_table_unlock();
    if (busy)
        return -EBUSY;
    sw_qp_quiesce_pd(mr->pd);     /* a posted receive may name this key */
    sw_mr_wait_for_serving(NULL); /* QPs of other PDs look at the entry, too, if only to refuse */
    sw_nic.link->quiesce();
    return 0;
}

int sw_mr_dereg(struct sw_mr *mr)
{
    int rc = withdraw_mr(mr);
    if (rc)
        return rc;
    const struct sw_pub_mr *entry = &sw_nic.pub->mrs[mr->index];
    sw_view_drop(sw_view_shift[mr->index], entry->va, entry->len_bytes);
    put_segments(mr->segments, mr->segment_count);
    sw_mr_release(mr);
    sw_pd_unref(mr->pd);
    free(mr);
    return 0;
}

int sw_mr_rereg(struct sw_mr *mr, const struct sw_mr_change *change)
{
    struct sw_pub_mr *entry = &sw_nic.pub->mrs[mr->index];
    bool moves = change->translation;
    uint64_t va = moves ? (uintptr_t)change->addr : entry->va;
    uint64_t len_bytes = moves ? change->len_bytes : entry->len_bytes;
    unsigned int access =
        change->access_valid ? change->access : entry->access & ~(SW_PUB_LOCAL_USE | SW_PUB_STEADY);
    uint64_t iova = moves ? (access & IBV_ACCESS_ZERO_BASED ? 0 : va) : entry->iova;
    int rc = check_args(va, len_bytes, iova, access);
    uint32_t persist = entry->persist;
    bool is_shared = false;
    if (!rc && (moves || change->access_valid))
        rc = check_memory(va, len_bytes, access, &is_shared, &persist);
    if (rc)
        return rc;

    struct sw_segment *old[SW_MR_EXTENTS];
    int old_count = moves ? mr->segment_count : 0;
    struct parts parts;
    const uint32_t seen = sw_mr_revocations();
    memcpy(old, mr->segments, sizeof(old));
    if (moves) /* before the old ones go: what both have in common does not move */
        get_parts(&parts, va, len_bytes, access);
    rc = withdraw_mr(mr);
    if (rc) {
        struct sw_segment *unused[SW_MR_EXTENTS];
        for (int i = 0; moves && i < parts.count; i++)
            unused[i] = parts.extents[i].segment;
        put_segments(unused, moves ? parts.count : 0);
        return rc;
    }
    int64_t shift = sw_view_shift[mr->index];
    if (moves) {
        sw_view_drop(shift, entry->va, entry->len_bytes);
        shift = is_shared ? sw_view_make(va, len_bytes) : 0;
        set_parts(entry, mr, &parts);
    }
    hand_out(entry, mr, sw_handed_out_for(access));
    entry->va = va;
    entry->len_bytes = len_bytes;
    entry->iova = iova;
    set_rights(mr, access, shift);
    entry->persist = persist;
    if (change->pd) {
        sw_pd_ref(change->pd);
        sw_pd_unref(mr->pd);
        mr->pd = change->pd;
        entry->pd = mr->pd->id;
    }
    uint32_t gen = sw_mr_generation();
    if (moves) /* a request that is half done must not go on in other memory */
        mr->key = sw_mr_draw_key(mr->index);
    atomic_store_explicit(&entry->key_word, (uint64_t)gen << 32 | mr->key, memory_order_release);
    sw_mr_published(mr->index, seen);
    put_segments(old, old_count);
    return 0;
}

uint32_t sw_mr_key(const struct sw_mr *mr)
{
    return mr->key;
}

void sw_mr_fork_child(const struct sw_pub *parent, struct sw_pub *fresh)
{
    /* Threads that are not here may have held them. */
    pthread_mutex_init(&last_reference, NULL);
    pthread_mutex_init(&table_lock, NULL);
    memset(sw_mr_serving, 0, sizeof(sw_mr_serving));
    sw_sync_job_fork_child();
    for (uint32_t i = 0; i < SW_MAX_MR; i++) {
        if (!sw_nic.mrs[i])
            continue;
        const struct sw_pub_mr *old = &parent->mrs[i];
        struct sw_pub_mr *entry = &fresh->mrs[i];
        entry->access = old->access;
        entry->kind = old->kind;
        entry->qpn = old->qpn;
        entry->persist = old->persist;
        entry->pd = old->pd;
        entry->iova = old->iova;
        entry->len_bytes = old->len_bytes;
        entry->va = old->va;
        entry->extent_count = 0;
        atomic_store(&entry->handed, SW_HANDED_OUT_NOT);
        sw_nic.mrs[i]->segment_count = 0;
        atomic_store(&entry->key_word, atomic_load(&old->key_word));
    }
}
