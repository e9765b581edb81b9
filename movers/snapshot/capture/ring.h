/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ring: one mapping of slots, each with room for a unit and its sums. A slot is free, filled by
 * a helper, in the queue, or taken by the session. Its owner's lock guards it.
 */
#ifndef SW_SNAPSHOT_RING_H
#define SW_SNAPSHOT_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot/core/sum.h"

enum snap_slot_state { SNAP_SLOT_FREE = 0, SNAP_SLOT_FILLED, SNAP_SLOT_QUEUED, SNAP_SLOT_TAKEN };

struct snap_slot {
    enum snap_slot_state state;
    uint32_t unit, bytes;
    bool is_again;
    uint32_t next; /* free, or in the queue */
};

enum { SNAP_NO_SLOT = UINT32_MAX };

struct snap_ring {
    uint8_t *base;
    size_t bytes;
    uint32_t slot_bytes, slots_count, free_count;
    struct snap_slot *slots;
    struct snap_sum *sums;
    uint32_t first_free, first_queued, last_queued;
};

/* `scratch` slots come on top, behind the others: nobody gets them. 0 or -ENOMEM. */
int snap_ring_open(struct snap_ring *ring, uint64_t bytes, uint32_t slot_bytes, uint32_t scratch);
/* In a child of fork() the mapping is not there. */
void snap_ring_close(struct snap_ring *ring, bool is_forked);

static inline uint8_t *snap_ring_slot(const struct snap_ring *ring, uint32_t slot)
{
    return ring->base + (size_t)slot * ring->slot_bytes;
}
struct snap_sum *snap_ring_sums(const struct snap_ring *ring, uint32_t slot);

/* To be filled; SNAP_NO_SLOT: none is free. */
uint32_t snap_ring_get(struct snap_ring *ring);
void snap_ring_put(struct snap_ring *ring, uint32_t slot);
void snap_ring_queue(struct snap_ring *ring, uint32_t slot);
/* The one that has waited longest; SNAP_NO_SLOT: the queue is empty. */
uint32_t snap_ring_take(struct snap_ring *ring);
/* Frees what is in the queue. */
void snap_ring_drop_queue(struct snap_ring *ring);

#endif
