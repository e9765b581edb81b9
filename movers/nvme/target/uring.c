/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/uring.h"

#include <errno.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

int nvt_uring_open(struct nvt_uring *uring, uint32_t entries)
{
    *uring = (struct nvt_uring){.event_fd = -1};
    struct io_uring_params params = {.flags = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE,
                                     .cq_entries = entries * 4};
    int rc = io_uring_queue_init_params(entries, &uring->ring, &params);
    if (rc)
        return rc;
    uring->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = uring->event_fd < 0 ? -errno : io_uring_register_eventfd(&uring->ring, uring->event_fd);
    if (rc) {
        io_uring_queue_exit(&uring->ring);
        if (uring->event_fd >= 0)
            close(uring->event_fd);
        return rc;
    }
    uring->is_open = true;
    return 0;
}

void nvt_uring_close(struct nvt_uring *uring)
{
    if (!uring->is_open)
        return;
    io_uring_queue_exit(&uring->ring);
    close(uring->event_fd);
    uring->is_open = false;
}

void nvt_uring_register(struct nvt_uring *uring, const struct iovec *buffers, unsigned count)
{
    if (!io_uring_register_buffers(&uring->ring, buffers, count))
        uring->buffers = (int)count;
}

struct io_uring_sqe *nvt_uring_entry(struct nvt_uring *uring, struct nvt_uring_op *op)
{
    struct io_uring_sqe *sqe;
    while (!(sqe = io_uring_get_sqe(&uring->ring)))
        if (!nvt_uring_submit(uring))
            sched_yield(); /* the kernel has no room for completions: they are reaped later */
    io_uring_sqe_set_data(sqe, op);
    uring->queued++;
    return sqe;
}

bool nvt_uring_submit(struct nvt_uring *uring)
{
    if (!uring->queued)
        return false;
    int sent = io_uring_submit(&uring->ring);
    if (sent <= 0)
        return false;
    uring->queued -= (uint32_t)sent < uring->queued ? (uint32_t)sent : uring->queued;
    uring->under_way += (uint32_t)sent;
    return true;
}

bool nvt_uring_reap(struct nvt_uring *uring)
{
    struct io_uring_cqe *cqe;
    bool any = false;
    while (uring->under_way && io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
        struct nvt_uring_op *op = io_uring_cqe_get_data(cqe);
        const int result = cqe->res;
        io_uring_cqe_seen(&uring->ring, cqe);
        uring->under_way--;
        op->complete(op, result);
        any = true;
    }
    return any;
}
