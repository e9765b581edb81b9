/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The io_uring that all backends share: each thread of the target has one. The thread calls
 * nvt_uring_reap() when it looks for other work, too; an eventfd wakes it where it sleeps.
 */
#ifndef SW_MOVERS_NVME_URING_H
#define SW_MOVERS_NVME_URING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/uring/ring.h"
#include "nvme/target/backend/parts.h"

struct nvme_uring_cmd;

/* Something that has to be looked at in each turn of a thread. */
struct nvt_poller {
    struct list_node node;
    bool (*poll)(struct nvt_poller *poller); /* true: there was something */
};

struct nvt_uring {
    /* System calls; NVMe commands, which the kernel takes in large entries only. */
    struct mover_ring calls, commands;
    int event_fd;
    bool wants_buffers;          /* some backend moves data by them */
    struct mover_ring_op *spare; /* of backend_file.c; freed at the end */
    struct nvt_parts parts;      /* of the thread's backends */
    /*
     * System calls that io_uring gives to workers, where they may hang with their disk. Moves are
     * reads and writes that the system cannot begin without waiting; chores are all others.
     */
    struct nvt_lines moves, chores;
    /* Operations of libraries that have threads of their own. `posted` is what these have ended,
     * the newest first; `taken` is what this thread has seen of it, the oldest first. */
    uint32_t awaited;
    _Atomic bool is_awake; /* the thread looks at `posted` before it sleeps: it need not be woken */
    _Atomic(struct mover_ring_op *) posted;
    struct mover_ring_op *taken;
    struct list pollers;
};

/* Returns 0 or a negative errno. */
int nvt_uring_open(struct nvt_uring *uring, uint32_t entries);
void nvt_uring_close(struct nvt_uring *uring);

/* An entry to be filled in, whose completion `op` gets. Never NULL: submits what waits first. */
struct io_uring_sqe *nvt_uring_entry(struct nvt_uring *uring, struct mover_ring_op *op);

/* What waits in its lines and nobody wants any more ends. */
void nvt_uring_end_unwanted(struct nvt_uring *uring);

/* Makes commands possible. Returns 0, or a negative errno where the kernel has no such thing. */
int nvt_uring_open_commands(struct nvt_uring *uring);
/* A command for the NVMe device at `fd`. Its completion is the device's status, or an errno. False:
 * commands cannot be made possible. */
bool nvt_uring_command(struct nvt_uring *uring, struct mover_ring_op *op, int fd,
                       const struct nvme_uring_cmd *command);

/* Another thread is going to end an operation of this one. */
static inline void nvt_uring_await(struct nvt_uring *uring)
{
    uring->awaited++;
}
/* By that thread: it is over. Then it completes in the thread of `uring`, as those of rings do. */
void nvt_uring_post(struct nvt_uring *uring, struct mover_ring_op *op, int result);
/* By the thread: what is posted from now on wakes it, and what was before it has yet to look for.
 * Until nvt_uring_rouse() is called for the first time each post does. */
void nvt_uring_doze(struct nvt_uring *uring);
void nvt_uring_rouse(struct nvt_uring *uring);
/* By the thread; the poller stays the caller's. */
void nvt_uring_add_poller(struct nvt_uring *uring, struct nvt_poller *poller);
/* While the thread stands still, or by itself outside of nvt_uring_poll(). */
void nvt_uring_remove_poller(struct nvt_poller *poller);
/* Calls each of them. */
bool nvt_uring_poll(struct nvt_uring *uring);

/* Submits what waits. True: there was something. */
bool nvt_uring_submit(struct nvt_uring *uring);
/* System calls end while they are submitted, as reads of what lies in memory do. */
bool nvt_uring_is_prompt(const struct nvt_uring *uring);
/* Completes a few of those that are done; true: there may be more. Hosts should have their answers
 * while the rest is looked at. Adds to `moved_bytes` what they have moved. */
bool nvt_uring_reap(struct nvt_uring *uring, uint64_t *moved_bytes);
/* What was submitted and is not completed yet, without what other threads are to end. */
uint32_t nvt_uring_under_way(const struct nvt_uring *uring);

#endif
