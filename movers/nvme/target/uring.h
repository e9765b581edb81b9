/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The io_uring that all backends of the target share. It has one thread, which calls
 * nvt_uring_reap() when it looks for other work, too; an eventfd wakes it where it sleeps.
 */
#ifndef SW_MOVERS_NVME_URING_H
#define SW_MOVERS_NVME_URING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

struct nvt_uring {
    struct io_uring ring;
    int event_fd;
    bool is_open, wants_buffers; /* wants: some backend moves data by it */
    uint32_t queued, under_way;  /* not submitted yet; not completed yet */
    int buffers;                 /* registered */
};

/* A completion: `result` as the system call would have said (negative errno). */
struct nvt_uring_op {
    void (*complete)(struct nvt_uring_op *op, int result);
};

/* Returns 0 or a negative errno. */
int nvt_uring_open(struct nvt_uring *uring, uint32_t entries);
void nvt_uring_close(struct nvt_uring *uring);

/*
 * Memory that may be named by number: [0, buffers). Where the system refuses, there are none. Takes
 * all its pages at once.
 */
void nvt_uring_register(struct nvt_uring *uring, const struct iovec *buffers, unsigned count);

/* An entry to be filled in, whose completion `op` gets. Never NULL: submits what waits first. */
struct io_uring_sqe *nvt_uring_entry(struct nvt_uring *uring, struct nvt_uring_op *op);

/* Submits what waits; completes what is done. True: there was something. */
bool nvt_uring_submit(struct nvt_uring *uring);
bool nvt_uring_reap(struct nvt_uring *uring);

#endif
