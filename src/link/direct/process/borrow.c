/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/process/borrow.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/shm.h"
#include "device/nic/nic.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/state.h"

#define PATIENCE_NS (2 * SW_NS_PER_S)
#define PAGE 4096u

/* Rights that mean the same in another process. */
#define LENT_ACCESS                                                              \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

/* The process, once it is attached; NULL: it is not there, or another user's. */
static struct sw_peer *meet_process(uint32_t slot)
{
    if (sw_direct.off || slot < 1 || slot > SW_SLOT_MAX || slot == sw_nic.slot)
        return NULL;
    struct sw_peer *peer = sw_peer_get(slot);
    uint64_t until_ns = sw_clock_ns() + PATIENCE_NS;
    if (!peer)
        return NULL;
    while (atomic_load(&peer->state) != SW_PEER_READY &&
           atomic_load(&peer->state) != SW_PEER_DEAD && sw_clock_ns() < until_ns)
        usleep(200);
    if (atomic_load(&peer->state) == SW_PEER_READY)
        return peer;
    sw_peer_put(peer);
    return NULL;
}

static bool has_pd(const struct sw_pub *pub, uint32_t pd)
{
    for (uint32_t i = 0; i < SW_MAX_QP; i++)
        if ((uint32_t)atomic_load(&pub->qps[i].bind_word) && SW_PUB_GET(pub->qps[i].pd) == pd)
            return true;
    uint32_t last = atomic_load(&pub->header.mr_last);
    for (uint32_t i = 0; i < SW_MAX_MR; i++) { /* the latest first */
        const struct sw_pub_mr *mr = &pub->mrs[(last - i) % SW_MAX_MR];
        if (atomic_load(&mr->key_word) && SW_PUB_GET(mr->pd) == pd)
            return true;
    }
    return false;
}

int sw_borrow_pd(uint32_t slot, uint32_t pd)
{
    struct sw_peer *peer = meet_process(slot);
    bool known = peer && has_pd(peer->pub, pd);
    if (peer)
        sw_peer_put(peer);
    return known ? 0 : -EOPNOTSUPP;
}

/* What is used of the region's entry, read once: its owner may change it. */
struct entry {
    uint32_t access, pd, kind, extent_count;
    uint64_t iova, va, len_bytes;
    struct sw_pub_extent extents[SW_MR_EXTENTS];
};

static bool borrow_read_entry(const struct sw_pub_mr *mr, struct entry *out)
{
    uint64_t word = atomic_load_explicit(&mr->key_word, memory_order_acquire);
    out->access = SW_PUB_GET(mr->access);
    out->pd = SW_PUB_GET(mr->pd);
    out->kind = SW_PUB_GET(mr->kind);
    out->iova = SW_PUB_GET(mr->iova);
    out->va = SW_PUB_GET(mr->va);
    out->len_bytes = SW_PUB_GET(mr->len_bytes);
    out->extent_count = SW_PUB_GET(mr->extent_count);
    for (uint32_t i = 0; i < SW_MR_EXTENTS; i++) {
        out->extents[i].va = SW_PUB_GET(mr->extents[i].va);
        out->extents[i].len_bytes = SW_PUB_GET(mr->extents[i].len_bytes);
        out->extents[i].file_offset = SW_PUB_GET(mr->extents[i].file_offset);
        out->extents[i].segment = SW_PUB_GET(mr->extents[i].segment);
    }
    atomic_thread_fence(memory_order_acquire);
    return word && atomic_load(&mr->key_word) == word && out->kind == SW_PUB_REGION;
}

/* Whether the extents cover the region without a gap, each beginning where the one before ends at
 * a border of pages. */
static bool is_whole(const struct entry *entry)
{
    uint64_t at = entry->va, end = entry->va + entry->len_bytes;
    if (entry->len_bytes == 0 || end < at || entry->extent_count > SW_MR_EXTENTS)
        return false;
    for (uint32_t i = 0; i < entry->extent_count && at < end; i++) {
        const struct sw_pub_extent *extent = &entry->extents[i];
        if (extent->va != at || extent->len_bytes == 0 || extent->len_bytes > end - at ||
            (i && at % PAGE) || (extent->file_offset - at) % PAGE)
            return false;
        at += extent->len_bytes;
    }
    return at == end;
}

static uint8_t *segment_of(struct sw_peer *peer, const struct sw_pub_extent *extent)
{
    uint64_t until_ns = sw_clock_ns() + PATIENCE_NS;
    bool refused = false;
    while (!refused && sw_clock_ns() < until_ns) {
        uint8_t *at = sw_peer_segment_at(peer, extent->segment, extent->file_offset,
                                         extent->len_bytes, true, &refused);
        if (at)
            return at;
        usleep(200);
    }
    return NULL;
}

/* A second mapping of the same pages: of a shared one, mremap(2) makes it where the old size is 0.
 */
static bool map_extent(struct sw_peer *peer, const struct sw_pub_extent *extent, uint8_t *to)
{
    uint8_t *from = segment_of(peer, extent);
    uint64_t before = (uintptr_t)from % PAGE;
    return from && sw_remap(from - before, 0, before + extent->len_bytes, to);
}

static int map_all(struct sw_peer *peer, const struct entry *entry, struct sw_borrowed *out)
{
    uint64_t before = entry->va % PAGE;
    uint64_t span = (before + entry->len_bytes + PAGE - 1) / PAGE * PAGE;
    void *base = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return -ENOMEM;
    *out = (struct sw_borrowed){.bytes = (uint8_t *)base + before,
                                .len_bytes = entry->len_bytes,
                                .iova = entry->iova,
                                .access = entry->access & LENT_ACCESS,
                                .base = base,
                                .mapped_bytes = span};
    uint64_t at = 0;
    for (uint32_t i = 0; i < entry->extent_count; i++) {
        uint8_t *to = out->bytes + at;
        if (!map_extent(peer, &entry->extents[i], to - (uintptr_t)to % PAGE)) {
            munmap(base, span);
            return -EOPNOTSUPP;
        }
        at += entry->extents[i].len_bytes;
    }
    return 0;
}

int sw_borrow_region(uint32_t slot, uint32_t pd, uint32_t index, struct sw_borrowed *out)
{
    struct sw_peer *peer = meet_process(slot);
    struct entry entry;
    int rc = -EOPNOTSUPP;
    if (!peer)
        return rc;
    if (index >= SW_MAX_MR || !borrow_read_entry(&peer->pub->mrs[index], &entry) || entry.pd != pd)
        rc = -EINVAL;
    else if (is_whole(&entry))
        rc = map_all(peer, &entry, out);
    sw_peer_put(peer);
    return rc;
}

void sw_borrow_return(const struct sw_borrowed *borrowed)
{
    munmap(borrowed->base, borrowed->mapped_bytes);
}
