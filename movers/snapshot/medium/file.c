/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * file:PATH, a file or a block device. Writes go past the system's cache where the file system lets
 * them. A FLUSH that failed ends the medium: the kernel tells of lost writes once, and what a later
 * one said would be worth nothing.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/rdma/fork_guard.h"
#include "common/time/clock.h"
#include "snapshot/medium/calls.h"
#include "snapshot/medium/file.h"
#include "snapshot/medium/ios.h"
#include "snapshot/medium/kinds.h"

/* How often a writer looks whether another one asks for the file. */
enum { LOOK_MS = 100 };

struct snap_file {
    struct snap_medium medium; /* must be first */
    struct mover_fork_guard guard;
    struct snap_file_place place;
    struct snap_calls *calls;
    struct snap_memories memories;
    struct snap_line waiting, ended; /* for room among the calls; for poll */
    int timer_fd;
    uint64_t looked_ns;
};

static struct snap_file *file_of(struct snap_medium *medium)
{
    return (struct snap_file *)medium;
}

static int file_use(struct snap_medium *medium, void *data, size_t bytes)
{
    return snap_memories_add(&file_of(medium)->memories, data, bytes, NULL);
}

static void file_submit(struct snap_medium *medium, struct snap_io *io)
{
    struct snap_file *file = file_of(medium);
    const int refusal =
        mover_is_forked(&file->guard) ? -EPERM : snap_io_refusal(medium, &file->memories, io);
    if (refusal)
        snap_ended_add(&file->ended, io, refusal);
    else if (snap_calls_have_room(file->calls))
        snap_calls_begin(file->calls, io);
    else
        snap_line_add(&file->waiting, io);
}

/* The lock goes once nothing is under way. */
static void file_let_go(struct snap_file *file)
{
    if (file->medium.error == -ESTALE && !snap_calls_under_way(file->calls))
        snap_file_place_close(&file->place, false);
}

static void file_look_around(struct snap_file *file)
{
    const uint64_t now_ns = mover_now_ns();
    if (!file->medium.is_writable || file->place.fd < 0 ||
        now_ns < file->looked_ns + LOOK_MS * NS_PER_MS)
        return;
    file->looked_ns = now_ns;
    if (!file->medium.error && snap_file_is_asked_for(file->place.fd)) {
        snap_medium_fail(&file->medium, -ESTALE, "another writer has taken over %.150s",
                         file->medium.name);
        snap_ended_add_all(&file->ended, &file->waiting, -ESTALE);
    }
    file_let_go(file);
}

static void file_end_io(struct snap_file *file, struct snap_io *io, int result)
{
    if (!result && io->kind == SNAP_IO_FLUSH && snap_file_place_is_deleted(&file->place)) {
        result = -EIO;
        snap_medium_fail(&file->medium, result,
                         "%.150s was deleted, and what was saved there is gone with it",
                         file->medium.name);
        snap_ended_add_all(&file->ended, &file->waiting, result);
    } else if (result && io->kind == SNAP_IO_FLUSH) {
        snap_medium_fail(&file->medium, result,
                         "%.100s: its disk has failed, and what was written before may be lost: "
                         "%s",
                         file->medium.name, strerror(-result));
        snap_ended_add_all(&file->ended, &file->waiting, result);
    }
    io->done(io, result);
}

static void file_poll(struct snap_medium *medium)
{
    struct snap_file *file = file_of(medium);
    struct snap_io *io;
    int result;
    snap_ended_tell(&file->ended);
    if (mover_is_forked(&file->guard))
        return;
    file_look_around(file);
    for (uint32_t i = 0; i < SNAP_CALLS_MAX && (io = snap_calls_take(file->calls, &result)); i++)
        file_end_io(file, io, result);
    while (snap_calls_have_room(file->calls) && (io = snap_line_take(&file->waiting)))
        snap_calls_begin(file->calls, io);
    file_let_go(file);
}

static bool file_arm(struct snap_medium *medium)
{
    struct snap_file *file = file_of(medium);
    uint64_t count;
    if (mover_is_forked(&file->guard))
        return !file->ended.first;
    (void)!read(file->timer_fd, &count, sizeof(count));
    file_look_around(file);
    const bool is_armed = snap_calls_arm(file->calls);
    return is_armed && !file->ended.first;
}

/* The disk has the memory of what is under way: that is waited for. What waits itself ends. */
static void file_end_all(struct snap_file *file)
{
    snap_medium_fail(&file->medium, -ECANCELED, "%.150s was closed", file->medium.name);
    snap_ended_add_all(&file->ended, &file->waiting, -ECANCELED);
    while (snap_calls_under_way(file->calls)) {
        file_poll(&file->medium);
        struct pollfd ready = {.fd = snap_calls_fd(file->calls), .events = POLLIN};
        if (snap_calls_under_way(file->calls) && snap_calls_arm(file->calls))
            poll(&ready, 1, LOOK_MS);
    }
}

static void free_file(struct snap_file *file, bool is_forked)
{
    if (file->calls)
        snap_calls_close(file->calls, is_forked);
    if (file->medium.fd >= 0)
        close(file->medium.fd);
    if (file->timer_fd >= 0)
        close(file->timer_fd);
    snap_file_place_close(&file->place, is_forked);
    mover_fork_guard_close(&file->guard);
    free(file);
}

static void file_close(struct snap_medium *medium)
{
    struct snap_file *file = file_of(medium);
    const bool is_forked = mover_is_forked(&file->guard);
    if (!is_forked)
        file_end_all(file);
    while (file->ended.first)
        snap_ended_tell(&file->ended);
    free_file(file, is_forked);
}

static const struct snap_medium_ops file_ops = {.use = file_use,
                                                .submit = file_submit,
                                                .poll = file_poll,
                                                .arm = file_arm,
                                                .close = file_close};

/* ---- opening ---- */

static bool watch_descriptor(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return !epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* One descriptor for calls that end, and for the next look around. */
static int file_make_descriptor(struct snap_file *file)
{
    const struct timespec each = {.tv_nsec = LOOK_MS * (long)NS_PER_MS};
    const struct itimerspec every = {each, each};
    file->medium.fd = epoll_create1(EPOLL_CLOEXEC);
    file->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (file->medium.fd < 0 || file->timer_fd < 0 ||
        !watch_descriptor(file->medium.fd, snap_calls_fd(file->calls)))
        return -errno;
    if (file->medium.is_writable && (timerfd_settime(file->timer_fd, 0, &every, NULL) ||
                                     !watch_descriptor(file->medium.fd, file->timer_fd)))
        return -errno;
    return 0;
}

static void note_ways(struct snap_file *file)
{
    const bool is_direct = file->place.is_direct, is_threaded = snap_calls_are_threads(file->calls);
    snprintf(file->medium.note, sizeof(file->medium.note), "%s%s%s",
             file->place.is_volatile ? "it lies in memory, and is gone with the power; " : "",
             is_direct ? "" : "its file system has no O_DIRECT: it goes by the system's cache; ",
             is_threaded ? "io_uring is refused here: it goes by threads; " : "");
    const size_t length = strlen(file->medium.note);
    if (length)
        file->medium.note[length - 2] = 0;
}

int snap_file_open(const char *path, const struct snap_medium_options *options, char *error,
                   size_t error_bytes, struct snap_medium **medium)
{
    struct snap_file *file = calloc(1, sizeof(*file));
    int code = file ? 0 : -ENOMEM;
    if (!code) {
        file->timer_fd = file->medium.fd = -1;
        code = snap_file_place_open(path, options, error, error_bytes, &file->place);
        if (code) {
            free(file);
            return code;
        }
        file->medium = (struct snap_medium){.ops = &file_ops,
                                            .fd = -1,
                                            .bytes = file->place.bytes,
                                            .is_new = file->place.is_new && options->is_writable,
                                            .is_writable = options->is_writable,
                                            .reads_back = options->reads_back,
                                            .is_volatile = file->place.is_volatile};
        code = snap_calls_open(file->place.fd, !file->place.is_direct, false, &file->calls);
        if (!code && !mover_fork_guard_open(&file->guard))
            code = -errno;
        if (!code)
            code = file_make_descriptor(file);
    }
    if (code) {
        snprintf(error, error_bytes, "%.150s: %s", path, strerror(-code));
        if (file)
            free_file(file, false);
        return code;
    }
    note_ways(file);
    *medium = &file->medium;
    return 0;
}
