/* SPDX-License-Identifier: BSD-2-Clause */
/* An io_uring of one thread: operations that are submitted, and complete when the thread looks. */
#ifndef SW_MOVERS_RING_H
#define SW_MOVERS_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A completion: `result` as the system call would have said (negative errno). */
struct mover_ring_op {
    void (*complete)(struct mover_ring_op *op, int result);
    struct mover_ring_op *next; /* of those aside, or of the owner's spare ones */
    int result;                 /* aside */
};

struct mover_ring {
    struct io_uring ring;
    bool is_open;
    bool is_prompt;             /* what was submitted last had ended before the call returned */
    uint32_t queued, under_way; /* not submitted yet; not completed yet */
    const uint8_t *fixed;       /* the registered buffer of that many bytes, 0: none */
    size_t fixed_bytes;
    /* Operations that are done, taken out of the kernel's queue to make room there. */
    struct mover_ring_op *aside, **aside_end;
};

/* `flags`: IORING_SETUP_*. `event_fd` is written to for each completion. 0, or a negative errno. */
int mover_ring_open(struct mover_ring *ring, uint32_t entries, uint32_t flags, int event_fd);
void mover_ring_close(struct mover_ring *ring);

/* Memory that the system need not look up for each call, as its buffer 0. Takes all its pages at
 * once. Where the system refuses, there is none. */
void mover_ring_register(struct mover_ring *ring, void *data, size_t bytes);

/* All of [data, data + bytes) lies in that memory. */
static inline bool mover_ring_is_fixed(const struct mover_ring *ring, const uint8_t *data,
                                       uint64_t bytes)
{
    const uint64_t offset = (uintptr_t)data - (uintptr_t)ring->fixed;
    return offset < ring->fixed_bytes && bytes <= ring->fixed_bytes - offset;
}

/* An entry to be filled in, whose completion `op` gets. Never NULL: submits what waits first. */
struct io_uring_sqe *mover_ring_entry(struct mover_ring *ring, struct mover_ring_op *op);
/* Submits what waits. True: there was something. */
bool mover_ring_submit(struct mover_ring *ring);
/* Completes some of those that are done: `count_max`, or fewer that have moved `bytes_max` bytes.
 * Adds to `moved_bytes` what they have moved. True: there may be more. */
bool mover_ring_reap(struct mover_ring *ring, uint32_t count_max, uint64_t bytes_max,
                     uint64_t *moved_bytes);

#endif
