/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/capture/ring.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "snapshot/core/medium.h"

enum { HUGE_BYTES = 2 << 20 };

/* Pages of 2 MiB where the system has some reserved, or makes them; each page is there from the
 * beginning, so that the first capture is not slower than the others. Begins at a huge page. */
static uint8_t *map_ring(size_t bytes)
{
    void *base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (bytes % HUGE_BYTES == 0 && base != MAP_FAILED)
        return base;
    assert(base == MAP_FAILED || munmap(base, bytes) == 0);
    uint8_t *room =
        mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    uint8_t *first = room + (-(uintptr_t)room & (HUGE_BYTES - 1));
    if (first > room)
        munmap(room, (size_t)(first - room));
    if (room + HUGE_BYTES > first)
        munmap(first + bytes, (size_t)(room + HUGE_BYTES - first));
    madvise(first, bytes, MADV_HUGEPAGE);
    return first;
}

int snap_ring_open(struct snap_ring *ring, uint64_t bytes, uint32_t slot_bytes, uint32_t scratch)
{
    const uint64_t wanted = (bytes + slot_bytes - 1) / slot_bytes;
    *ring = (struct snap_ring){.slot_bytes = slot_bytes, .first_free = SNAP_NO_SLOT};
    ring->first_queued = ring->last_queued = SNAP_NO_SLOT;
    if (wanted > UINT32_MAX / 2)
        return -ENOMEM;
    ring->slots_count = wanted < 2 ? 2 : (uint32_t)wanted;
    ring->bytes = (size_t)(ring->slots_count + scratch) * slot_bytes;
    ring->slots = calloc(ring->slots_count, sizeof(*ring->slots));
    ring->sums =
        calloc((size_t)ring->slots_count * (slot_bytes / SNAP_BLOCK_BYTES), sizeof(*ring->sums));
    ring->base = map_ring(ring->bytes);
    if (!ring->slots || !ring->sums || !ring->base) {
        snap_ring_close(ring, false);
        return -ENOMEM;
    }
    madvise(ring->base, ring->bytes, MADV_DONTFORK);
    if (madvise(ring->base, ring->bytes, MADV_POPULATE_WRITE) && errno != EINVAL) {
        snap_ring_close(ring, false); /* Linux 5.14; before, it fails when it is written */
        return -ENOMEM;
    }
    for (uint32_t slot = ring->slots_count; slot-- > 0;) {
        ring->slots[slot].state = SNAP_SLOT_FILLED;
        snap_ring_put(ring, slot);
    }
    return 0;
}

void snap_ring_close(struct snap_ring *ring, bool is_forked)
{
    if (ring->base && !is_forked)
        munmap(ring->base, ring->bytes);
    free(ring->slots);
    free(ring->sums);
    *ring = (struct snap_ring){0};
}

struct snap_sum *snap_ring_sums(const struct snap_ring *ring, uint32_t slot)
{
    return ring->sums + (size_t)slot * (ring->slot_bytes / SNAP_BLOCK_BYTES);
}

uint32_t snap_ring_get(struct snap_ring *ring)
{
    const uint32_t slot = ring->first_free;
    if (slot == SNAP_NO_SLOT)
        return slot;
    assert(ring->slots[slot].state == SNAP_SLOT_FREE);
    ring->first_free = ring->slots[slot].next;
    ring->slots[slot].state = SNAP_SLOT_FILLED;
    ring->free_count--;
    return slot;
}

void snap_ring_put(struct snap_ring *ring, uint32_t slot)
{
    assert(slot < ring->slots_count && ring->slots[slot].state != SNAP_SLOT_FREE);
    ring->slots[slot].state = SNAP_SLOT_FREE;
    ring->slots[slot].next = ring->first_free;
    ring->first_free = slot;
    ring->free_count++;
}

void snap_ring_queue(struct snap_ring *ring, uint32_t slot)
{
    assert(ring->slots[slot].state == SNAP_SLOT_FILLED);
    ring->slots[slot].state = SNAP_SLOT_QUEUED;
    ring->slots[slot].next = SNAP_NO_SLOT;
    if (ring->first_queued == SNAP_NO_SLOT)
        ring->first_queued = slot;
    else
        ring->slots[ring->last_queued].next = slot;
    ring->last_queued = slot;
}

uint32_t snap_ring_take(struct snap_ring *ring)
{
    const uint32_t slot = ring->first_queued;
    if (slot == SNAP_NO_SLOT)
        return slot;
    assert(ring->slots[slot].state == SNAP_SLOT_QUEUED);
    ring->first_queued = ring->slots[slot].next;
    ring->slots[slot].state = SNAP_SLOT_TAKEN;
    return slot;
}

void snap_ring_drop_queue(struct snap_ring *ring)
{
    for (uint32_t slot = snap_ring_take(ring); slot != SNAP_NO_SLOT; slot = snap_ring_take(ring))
        snap_ring_put(ring, slot);
}
