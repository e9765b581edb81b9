/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The io_uring that all backends share: each thread of the target has one. The thread calls
 * nvt_uring_reap() when it looks for other work, too; an eventfd wakes it where it sleeps.
 */
#ifndef SW_MOVERS_NVME_URING_H
#define SW_MOVERS_NVME_URING_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/target/backend/parts.h"

struct nvme_uring_cmd;

/* Entries of one size: the kernel takes commands for devices in large ones only. */
struct nvt_ring {
    struct io_uring ring;
    bool is_open;
    bool is_prompt;             /* what was submitted last had ended before the call returned */
    uint32_t queued, under_way; /* not submitted yet; not completed yet */
    /* Operations that are done, taken out of the kernel's queue to make room there. */
    struct nvt_uring_op *aside, **aside_end;
};

struct nvt_uring {
    struct nvt_ring calls, commands; /* system calls; NVMe commands */
    int event_fd;
    const uint8_t *fixed; /* the registered buffer of that many bytes, 0: none */
    size_t fixed_bytes;
    bool wants_buffers;         /* some backend moves data by them */
    struct nvt_uring_op *spare; /* of backend_file.c; freed at the end */
    struct nvt_parts parts;     /* of the thread's backends */
    /*
     * System calls that io_uring gives to workers, where they may hang with their disk. Moves are
     * reads and writes that the system cannot begin without waiting; chores are all others.
     */
    struct nvt_lines moves, chores;
};

/* A completion: `result` as the system call would have said (negative errno). */
struct nvt_uring_op {
    void (*complete)(struct nvt_uring_op *op, int result);
    struct nvt_uring_op *next; /* of spare ones, or of those aside */
    int result;                /* aside */
};

/* Returns 0 or a negative errno. */
int nvt_uring_open(struct nvt_uring *uring, uint32_t entries);
void nvt_uring_close(struct nvt_uring *uring);

/* Memory that the system need not look up for each call, as its buffer 0. Takes all its pages at
 * once. Where the system refuses, there is none. */
void nvt_uring_register(struct nvt_uring *uring, void *data, size_t bytes);

/* All of [data, data + bytes) lies in that memory. */
static inline bool nvt_uring_is_fixed(const struct nvt_uring *uring, const uint8_t *data,
                                      uint64_t bytes)
{
    const uint64_t offset = (uintptr_t)data - (uintptr_t)uring->fixed;
    return offset < uring->fixed_bytes && bytes <= uring->fixed_bytes - offset;
}

/* An entry to be filled in, whose completion `op` gets. Never NULL: submits what waits first. */
struct io_uring_sqe *nvt_uring_entry(struct nvt_uring *uring, struct nvt_uring_op *op);

/* What waits in its lines and nobody wants any more ends. */
void nvt_uring_end_unwanted(struct nvt_uring *uring);

/* Makes commands possible. Returns 0, or a negative errno where the kernel has no such thing. */
int nvt_uring_open_commands(struct nvt_uring *uring);
/* A command for the NVMe device at `fd`. Its completion is the device's status, or an errno. False:
 * commands cannot be made possible. */
bool nvt_uring_command(struct nvt_uring *uring, struct nvt_uring_op *op, int fd,
                       const struct nvme_uring_cmd *command);

/* Submits what waits. True: there was something. */
bool nvt_uring_submit(struct nvt_uring *uring);
/* System calls end while they are submitted, as reads of what lies in memory do. */
bool nvt_uring_is_prompt(const struct nvt_uring *uring);
/* Completes a few of those that are done; true: there may be more. Hosts should have their answers
 * while the rest is looked at. Adds to `moved_bytes` what they have moved. */
bool nvt_uring_reap(struct nvt_uring *uring, uint64_t *moved_bytes);
/* What was submitted and is not completed yet. */
uint32_t nvt_uring_under_way(const struct nvt_uring *uring);

#endif
