/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/uring.h"

#include <errno.h>
#include <linux/nvme_ioctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/minmax.h"

enum { COMMAND_ENTRIES = 512, REAP_MAX = 2 };

/* A disk has as many chores at once as help it: they are the system's in the order they come. */
enum { CHORES = 128, CHORES_OF_ONE = 16, MOVES_MIN = 64, WORKERS_PER_CORE = 4 };

/* To move the data of one such answer takes so long that the next command is there meanwhile. */
enum { LONG_BYTES = 64 << 10 };

/* Workers of plain files and block devices; io_uring counts those of other files apart. Without our
 * word it has a few for each core. */
static uint32_t ask_for_workers(struct io_uring *ring, uint32_t wanted, uint32_t otherwise)
{
    unsigned asked[2] = {wanted, 0}, now[2] = {0, 0};
    if (io_uring_register_iowq_max_workers(ring, asked) ||
        io_uring_register_iowq_max_workers(ring, now))
        return otherwise;
    return now[0];
}

/* As many places as workers: an operation that has one does not wait for a worker. Where the kernel
 * does not say how many there are, they may be fewer. */
static void open_lines(struct nvt_uring *uring, uint32_t entries)
{
    const uint32_t cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t usual = mover_min_u32(entries, WORKERS_PER_CORE * cores);
    const uint32_t moves = (uint32_t)mover_max_u64(MOVES_MIN, 2 * usual);
    const uint32_t workers = ask_for_workers(&uring->calls.ring, CHORES + moves, usual);
    const uint32_t chores = mover_min_u32(CHORES, (workers + 1) / 2);
    nvt_lines_open(&uring->chores, chores, CHORES_OF_ONE);
    nvt_lines_open(&uring->moves, workers > chores ? workers - chores : 1, UINT32_MAX);
}

int nvt_uring_open(struct nvt_uring *uring, uint32_t entries)
{
    *uring = (struct nvt_uring){.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    list_init(&uring->pollers);
    int rc = uring->event_fd < 0 ? -errno : nvt_parts_open(&uring->parts);
    if (!rc)
        rc = mover_ring_open(&uring->calls, entries, 0, uring->event_fd);
    if (!rc) {
        open_lines(uring, entries);
        return 0;
    }
    nvt_parts_close(&uring->parts);
    if (uring->event_fd >= 0)
        close(uring->event_fd);
    return rc;
}

int nvt_uring_open_commands(struct nvt_uring *uring)
{
    if (uring->commands.is_open)
        return 0;
    return mover_ring_open(&uring->commands, COMMAND_ENTRIES,
                           IORING_SETUP_SQE128 | IORING_SETUP_CQE32, uring->event_fd);
}

void nvt_uring_close(struct nvt_uring *uring)
{
    if (!uring->calls.is_open)
        return;
    mover_ring_close(&uring->calls);
    mover_ring_close(&uring->commands);
    close(uring->event_fd);
    nvt_parts_close(&uring->parts);
    nvt_lines_close(&uring->moves);
    nvt_lines_close(&uring->chores);
    while (uring->spare) {
        struct mover_ring_op *op = uring->spare;
        uring->spare = op->next;
        free(op);
    }
}

struct io_uring_sqe *nvt_uring_entry(struct nvt_uring *uring, struct mover_ring_op *op)
{
    return mover_ring_entry(&uring->calls, op);
}

bool nvt_uring_command(struct nvt_uring *uring, struct mover_ring_op *op, int fd,
                       const struct nvme_uring_cmd *command)
{
    if (nvt_uring_open_commands(uring))
        return false;
    struct io_uring_sqe *sqe = mover_ring_entry(&uring->commands, op);
    io_uring_prep_rw(IORING_OP_URING_CMD, sqe, fd, NULL, 0, 0);
    sqe->cmd_op = NVME_URING_CMD_IO;
    memcpy(sqe->cmd, command, sizeof(*command)); /* an entry of 128 bytes has room for 80 */
    return true;
}

void nvt_uring_add_poller(struct nvt_uring *uring, struct nvt_poller *poller)
{
    list_append(&uring->pollers, &poller->node);
}

void nvt_uring_remove_poller(struct nvt_poller *poller)
{
    list_remove(&poller->node);
}

bool nvt_uring_poll(struct nvt_uring *uring)
{
    bool any = false;
    struct list_node *next;
    for (struct list_node *node = list_first(&uring->pollers); node; node = next) {
        next = list_after(&uring->pollers, node);
        struct nvt_poller *poller = LIST_MEMBER(node, struct nvt_poller, node);
        any = poller->poll(poller) || any;
    }
    return any;
}

bool nvt_uring_submit(struct nvt_uring *uring)
{
    const bool any = mover_ring_submit(&uring->calls);
    return mover_ring_submit(&uring->commands) || any;
}

void nvt_uring_end_unwanted(struct nvt_uring *uring)
{
    nvt_lines_end_unwanted(&uring->parts.lines);
    nvt_lines_end_unwanted(&uring->moves);
    nvt_lines_end_unwanted(&uring->chores);
}

uint32_t nvt_uring_under_way(const struct nvt_uring *uring)
{
    return uring->calls.under_way + uring->commands.under_way;
}

bool nvt_uring_is_prompt(const struct nvt_uring *uring)
{
    return uring->calls.is_prompt;
}

void nvt_uring_doze(struct nvt_uring *uring)
{
    atomic_store(&uring->is_awake, false);
}

void nvt_uring_rouse(struct nvt_uring *uring)
{
    atomic_store_explicit(&uring->is_awake, true, memory_order_relaxed);
}

/* The thread is woken by the first one alone, and where it sleeps: it takes all that are there. One
 * order of all that happens to both words: either it sees this one, or it is seen to doze. */
void nvt_uring_post(struct nvt_uring *uring, struct mover_ring_op *op, int result)
{
    struct mover_ring_op *before = atomic_load_explicit(&uring->posted, memory_order_relaxed);
    op->result = result;
    do
        op->next = before;
    while (!atomic_compare_exchange_weak(&uring->posted, &before, op));
    if (!before && !atomic_load(&uring->is_awake))
        (void)eventfd_write(uring->event_fd, 1);
}

/* They are completed in the order in which they have ended. */
static struct mover_ring_op *take_posted(struct nvt_uring *uring)
{
    struct mover_ring_op *oldest = NULL;
    if (!atomic_load(&uring->posted)) /* after nvt_uring_doze() */
        return NULL;
    struct mover_ring_op *op = atomic_exchange_explicit(&uring->posted, NULL, memory_order_acquire);
    while (op) {
        struct mover_ring_op *older = op->next;
        op->next = oldest;
        oldest = op;
        op = older;
    }
    return oldest;
}

static bool complete_posted(struct nvt_uring *uring, uint64_t *moved_bytes)
{
    uint32_t count = 0;
    for (; count < REAP_MAX && uring->awaited; count++) {
        struct mover_ring_op *op = uring->taken ? uring->taken : take_posted(uring);
        if (!op)
            break;
        uring->taken = op->next;
        uring->awaited--;
        *moved_bytes += op->result > 0 ? (uint64_t)op->result : 0;
        op->complete(op, op->result);
    }
    return count > 0;
}

bool nvt_uring_reap(struct nvt_uring *uring, uint64_t *moved_bytes)
{
    bool any = mover_ring_reap(&uring->calls, REAP_MAX, LONG_BYTES, moved_bytes);
    any = mover_ring_reap(&uring->commands, REAP_MAX, LONG_BYTES, moved_bytes) || any;
    return complete_posted(uring, moved_bytes) || any;
}
