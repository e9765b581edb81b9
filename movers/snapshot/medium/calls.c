/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/medium/calls.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/uring/ring.h"
#include "snapshot/medium/ios.h"
#include "snapshot/medium/workers.h"

/* A call that was refused for want of memory, or of a worker, is tried again so often. */
enum { TRIES = 10000 };

struct snap_calls {
    int file_fd, event_fd;
    bool may_wait;
    struct mover_ring ring;
    struct snap_workers *workers; /* NULL: by the ring */
    struct snap_line ended;
    uint32_t under_way;
};

/* What io.private has while a call is in the ring. */
struct ring_call {
    struct mover_ring_op op; /* must be first */
    uint32_t moved, tries;
};
static_assert(sizeof(struct ring_call) <= sizeof(((struct snap_io *)0)->private), "it has room");

/* The operation has no room for its ring beside it: the thread that reaps has it here. */
static _Thread_local struct snap_calls *reaped;

static struct snap_io *ring_io_of(struct ring_call *call)
{
    return (struct snap_io *)((char *)call - offsetof(struct snap_io, private));
}

static void ring_send(struct snap_calls *calls, struct snap_io *io);

static void ring_complete(struct mover_ring_op *op, int result)
{
    struct ring_call *call = (struct ring_call *)op;
    struct snap_io *io = ring_io_of(call);
    const bool is_refused = result == -EINTR || result == -EAGAIN || result == -ECANCELED;
    if (is_refused && call->tries++ < TRIES)
        return ring_send(reaped, io);
    if (result > 0 && io->kind != SNAP_IO_FLUSH) {
        call->moved += (uint32_t)result;
        if (call->moved < io->bytes)
            return ring_send(reaped, io);
        result = 0;
    } else if (!result && io->kind != SNAP_IO_FLUSH) {
        result = io->kind == SNAP_IO_WRITE ? -ENOSPC : -EIO; /* the file has become shorter */
    }
    snap_ended_add(&reaped->ended, io, result);
}

static void ring_send(struct snap_calls *calls, struct snap_io *io)
{
    struct ring_call *call = (struct ring_call *)io->private;
    struct io_uring_sqe *sqe = mover_ring_entry(&calls->ring, &call->op);
    char *data = (char *)io->data + (io->kind == SNAP_IO_FLUSH ? 0 : call->moved);
    const uint32_t left = io->bytes - call->moved;
    const uint64_t at = io->offset + call->moved;
    if (io->kind == SNAP_IO_FLUSH)
        io_uring_prep_fsync(sqe, calls->file_fd, IORING_FSYNC_DATASYNC);
    else if (io->kind == SNAP_IO_WRITE)
        io_uring_prep_write(sqe, calls->file_fd, data, left, at);
    else
        io_uring_prep_read(sqe, calls->file_fd, data, left, at);
    if (calls->may_wait || call->tries)
        io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    io_uring_sqe_set_data(sqe, &call->op);
}

int snap_calls_open(int file_fd, bool may_wait, bool by_threads, struct snap_calls **out)
{
    struct snap_calls *calls = calloc(1, sizeof(*calls));
    if (!calls)
        return -ENOMEM;
    *calls = (struct snap_calls){.file_fd = file_fd, .may_wait = may_wait};
    calls->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int code = calls->event_fd < 0 ? -errno : 0;
    if (!code && (by_threads || mover_ring_open(&calls->ring, SNAP_CALLS_MAX, 0, calls->event_fd)))
        code = snap_workers_open(file_fd, calls->event_fd, &calls->workers);
    if (code) {
        if (calls->event_fd >= 0)
            close(calls->event_fd);
        free(calls);
        return code;
    }
    *out = calls;
    return 0;
}

void snap_calls_close(struct snap_calls *calls, bool is_forked)
{
    assert(is_forked || !calls->under_way);
    if (calls->workers)
        snap_workers_close(calls->workers, is_forked);
    mover_ring_close(&calls->ring);
    close(calls->event_fd);
    free(calls);
}

bool snap_calls_are_threads(const struct snap_calls *calls)
{
    return calls->workers;
}

int snap_calls_fd(const struct snap_calls *calls)
{
    return calls->event_fd;
}

static void collect_ended(struct snap_calls *calls)
{
    uint64_t bytes = 0;
    reaped = calls;
    if (calls->workers) {
        snap_workers_take(calls->workers, &calls->ended);
        return;
    }
    mover_ring_submit(&calls->ring);
    mover_ring_reap(&calls->ring, SNAP_CALLS_MAX, UINT64_MAX, &bytes);
    mover_ring_submit(&calls->ring); /* those that go on */
}

bool snap_calls_arm(struct snap_calls *calls)
{
    uint64_t count;
    (void)!read(calls->event_fd, &count, sizeof(count));
    collect_ended(calls);
    return !calls->ended.first;
}

uint32_t snap_calls_under_way(const struct snap_calls *calls)
{
    return calls->under_way;
}

bool snap_calls_have_room(const struct snap_calls *calls)
{
    return calls->under_way < SNAP_CALLS_MAX;
}

void snap_calls_begin(struct snap_calls *calls, struct snap_io *io)
{
    assert(snap_calls_have_room(calls));
    calls->under_way++;
    if (calls->workers)
        return snap_workers_add(calls->workers, io);
    struct ring_call *call = (struct ring_call *)io->private;
    *call = (struct ring_call){.op.complete = ring_complete};
    ring_send(calls, io);
}

struct snap_io *snap_calls_take(struct snap_calls *calls, int *result)
{
    if (!calls->ended.first)
        collect_ended(calls);
    struct snap_io *io = snap_line_take(&calls->ended);
    if (!io)
        return NULL;
    *result = (int)(int64_t)io->private[0];
    calls->under_way--;
    return io;
}
