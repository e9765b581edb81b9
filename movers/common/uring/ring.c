/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/uring/ring.h"

#include <sched.h>

int mover_ring_open(struct mover_ring *ring, uint32_t entries, uint32_t flags, int event_fd)
{
    struct io_uring_params params = {.flags = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE | flags,
                                     .cq_entries = entries * 4};
    *ring = (struct mover_ring){.is_open = false};
    int rc = io_uring_queue_init_params(entries, &ring->ring, &params);
    if (rc)
        return rc;
    rc = io_uring_register_eventfd(&ring->ring, event_fd);
    if (rc)
        io_uring_queue_exit(&ring->ring);
    ring->is_open = !rc;
    ring->aside_end = &ring->aside;
    return rc;
}

void mover_ring_close(struct mover_ring *ring)
{
    if (ring->is_open)
        io_uring_queue_exit(&ring->ring);
    ring->is_open = false;
}

void mover_ring_register(struct mover_ring *ring, void *data, size_t bytes)
{
    const struct iovec buffer = {data, bytes};
    if (io_uring_register_buffers(&ring->ring, &buffer, 1))
        return;
    ring->fixed = data;
    ring->fixed_bytes = bytes;
}

bool mover_ring_submit(struct mover_ring *ring)
{
    if (!ring->queued)
        return false;
    const unsigned ready = io_uring_cq_ready(&ring->ring);
    const int sent = io_uring_submit(&ring->ring);
    if (sent <= 0)
        return false;
    ring->is_prompt = io_uring_cq_ready(&ring->ring) - ready >= (unsigned)sent;
    ring->queued -= (uint32_t)sent < ring->queued ? (uint32_t)sent : ring->queued;
    ring->under_way += (uint32_t)sent;
    return true;
}

/* The next completion that the kernel has; NULL: none. */
static struct mover_ring_op *ring_take_completion(struct mover_ring *ring, int *result)
{
    struct io_uring_cqe *cqe;
    if (io_uring_peek_cqe(&ring->ring, &cqe))
        return NULL;
    struct mover_ring_op *op = io_uring_cqe_get_data(cqe);
    *result = cqe->res;
    io_uring_cqe_seen(&ring->ring, cqe);
    return op;
}

/* For mover_ring_reap(), since an operation that ends here might begin another one. False: none is
 * done. */
static bool ring_put_aside(struct mover_ring *ring)
{
    struct mover_ring_op *op;
    int result;
    bool any = false;
    while ((op = ring_take_completion(ring, &result))) {
        op->result = result;
        op->next = NULL;
        *ring->aside_end = op;
        ring->aside_end = &op->next;
        any = true;
    }
    return any;
}

static struct mover_ring_op *ring_take_done(struct mover_ring *ring, int *result)
{
    struct mover_ring_op *op = ring->aside;
    if (!op)
        return ring_take_completion(ring, result);
    *result = op->result;
    ring->aside = op->next;
    if (!op->next)
        ring->aside_end = &ring->aside;
    return op;
}

/* Linux 5.5 to 5.18 takes nothing while it has no room for completions. */
struct io_uring_sqe *mover_ring_entry(struct mover_ring *ring, struct mover_ring_op *op)
{
    struct io_uring_sqe *sqe;
    while (!(sqe = io_uring_get_sqe(&ring->ring)))
        if (!mover_ring_submit(ring) && !ring_put_aside(ring))
            sched_yield(); /* it has no memory now */
    io_uring_sqe_set_data(sqe, op);
    ring->queued++;
    return sqe;
}

bool mover_ring_reap(struct mover_ring *ring, uint32_t count_max, uint64_t bytes_max,
                     uint64_t *moved_bytes)
{
    const uint64_t before = *moved_bytes;
    uint32_t count = 0;
    for (; count < count_max && ring->under_way && *moved_bytes - before < bytes_max; count++) {
        int result;
        struct mover_ring_op *op = ring_take_done(ring, &result);
        if (!op)
            break;
        *moved_bytes += result > 0 ? (uint64_t)result : 0;
        ring->under_way--;
        op->complete(op, result);
    }
    return count > 0;
}
