/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/uring.h"

#include <errno.h>
#include <linux/nvme_ioctl.h>
#include <sched.h>
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

static int uring_open_ring(struct nvt_ring *ring, uint32_t entries, uint32_t flags, int event_fd)
{
    struct io_uring_params params = {.flags = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE | flags,
                                     .cq_entries = entries * 4};
    int rc = io_uring_queue_init_params(entries, &ring->ring, &params);
    if (rc)
        return rc;
    rc = io_uring_register_eventfd(&ring->ring, event_fd);
    if (rc)
        io_uring_queue_exit(&ring->ring);
    ring->is_open = !rc;
    ring->aside = NULL;
    ring->aside_end = &ring->aside;
    return rc;
}

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
    int rc = uring->event_fd < 0 ? -errno : nvt_parts_open(&uring->parts);
    if (!rc)
        rc = uring_open_ring(&uring->calls, entries, 0, uring->event_fd);
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
    return uring_open_ring(&uring->commands, COMMAND_ENTRIES,
                           IORING_SETUP_SQE128 | IORING_SETUP_CQE32, uring->event_fd);
}

void nvt_uring_close(struct nvt_uring *uring)
{
    if (!uring->calls.is_open)
        return;
    io_uring_queue_exit(&uring->calls.ring);
    if (uring->commands.is_open)
        io_uring_queue_exit(&uring->commands.ring);
    close(uring->event_fd);
    nvt_parts_close(&uring->parts);
    nvt_lines_close(&uring->moves);
    nvt_lines_close(&uring->chores);
    while (uring->spare) {
        struct nvt_uring_op *op = uring->spare;
        uring->spare = op->next;
        free(op);
    }
    uring->calls.is_open = uring->commands.is_open = false;
}

void nvt_uring_register(struct nvt_uring *uring, void *data, size_t bytes)
{
    const struct iovec buffer = {data, bytes};
    if (io_uring_register_buffers(&uring->calls.ring, &buffer, 1))
        return;
    uring->fixed = data;
    uring->fixed_bytes = bytes;
}

static bool submit_ring(struct nvt_ring *ring)
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
static struct nvt_uring_op *take_completion(struct nvt_ring *ring, int *result)
{
    struct io_uring_cqe *cqe;
    if (io_uring_peek_cqe(&ring->ring, &cqe))
        return NULL;
    struct nvt_uring_op *op = io_uring_cqe_get_data(cqe);
    *result = cqe->res;
    io_uring_cqe_seen(&ring->ring, cqe);
    return op;
}

/* For reap_ring(), since an operation that ends here might begin another one. False: none is done.
 */
static bool uring_put_aside(struct nvt_ring *ring)
{
    struct nvt_uring_op *op;
    int result;
    bool any = false;
    while ((op = take_completion(ring, &result))) {
        op->result = result;
        op->next = NULL;
        *ring->aside_end = op;
        ring->aside_end = &op->next;
        any = true;
    }
    return any;
}

static struct nvt_uring_op *uring_take_done(struct nvt_ring *ring, int *result)
{
    struct nvt_uring_op *op = ring->aside;
    if (!op)
        return take_completion(ring, result);
    *result = op->result;
    ring->aside = op->next;
    if (!op->next)
        ring->aside_end = &ring->aside;
    return op;
}

/* Linux 5.5 to 5.18 takes nothing while it has no room for completions. */
static struct io_uring_sqe *uring_take_entry(struct nvt_ring *ring, struct nvt_uring_op *op)
{
    struct io_uring_sqe *sqe;
    while (!(sqe = io_uring_get_sqe(&ring->ring)))
        if (!submit_ring(ring) && !uring_put_aside(ring))
            sched_yield(); /* it has no memory now */
    io_uring_sqe_set_data(sqe, op);
    ring->queued++;
    return sqe;
}

struct io_uring_sqe *nvt_uring_entry(struct nvt_uring *uring, struct nvt_uring_op *op)
{
    return uring_take_entry(&uring->calls, op);
}

bool nvt_uring_command(struct nvt_uring *uring, struct nvt_uring_op *op, int fd,
                       const struct nvme_uring_cmd *command)
{
    if (nvt_uring_open_commands(uring))
        return false;
    struct io_uring_sqe *sqe = uring_take_entry(&uring->commands, op);
    io_uring_prep_rw(IORING_OP_URING_CMD, sqe, fd, NULL, 0, 0);
    sqe->cmd_op = NVME_URING_CMD_IO;
    memcpy(sqe->cmd, command, sizeof(*command)); /* an entry of 128 bytes has room for 80 */
    return true;
}

bool nvt_uring_submit(struct nvt_uring *uring)
{
    const bool any = submit_ring(&uring->calls);
    return submit_ring(&uring->commands) || any;
}

static bool reap_ring(struct nvt_ring *ring, uint64_t *moved_bytes)
{
    const uint64_t before = *moved_bytes;
    uint32_t count = 0;
    for (; count < REAP_MAX && ring->under_way && *moved_bytes - before < LONG_BYTES; count++) {
        int result;
        struct nvt_uring_op *op = uring_take_done(ring, &result);
        if (!op)
            break;
        *moved_bytes += result > 0 ? (uint64_t)result : 0;
        ring->under_way--;
        op->complete(op, result);
    }
    return count > 0;
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

bool nvt_uring_reap(struct nvt_uring *uring, uint64_t *moved_bytes)
{
    const bool any = reap_ring(&uring->calls, moved_bytes);
    return reap_ring(&uring->commands, moved_bytes) || any;
}
