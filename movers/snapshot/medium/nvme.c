/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * nvme:ADDR[:PORT]/NQN[/NSID]. An io is sent in parts as large as the controller takes. When a
 * connection is lost, ios under way wait for the next one and are sent again as a whole.
 */
#include "snapshot/medium/nvme.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/minmax.h"
#include "common/time/clock.h"
#include "snapshot/medium/kinds.h"

enum { TICK_MS = 100, BEAT_MS = 500, STALL_DEFAULT_MS = 10000, QUEUE_SIZE = 128 };

/* What io.private has: parts under way, the first that failed, bytes sent, WRITEs before a
 * FLUSH. */
enum { PARTS, RESULT, SENT, BEFORE };

static struct snap_nvme *nvme_of(struct snap_medium *medium)
{
    return (struct snap_nvme *)medium;
}

/* ---- ios ---- */

static void nvme_end_io(struct snap_nvme *n, struct snap_io *io)
{
    const int result = (int)(int64_t)io->private[RESULT];
    if (result == -EAGAIN && !n->medium.error)
        return snap_line_add(&n->waiting, io);
    if (!result && io->kind == SNAP_IO_WRITE)
        n->written++;
    if (!result && io->kind == SNAP_IO_FLUSH)
        n->flushed = mover_max_u64(n->flushed, io->private[BEFORE]);
    if (result && result != -EAGAIN && (io->kind == SNAP_IO_FLUSH || result == -ESTALE))
        snap_medium_fail(&n->medium, result, "%.100s: %s", n->medium.name,
                         result == -ESTALE ? "another writer has taken over"
                                           : "its disk has failed, and what was written before "
                                             "may be lost");
    snap_ended_add(&n->ended, io, result == -EAGAIN ? n->medium.error : result);
}

/* A connection that is lost ends all: the next one gets them again. */
static int io_errno_of(struct snap_nvme *n, const struct sw_nvme_result *result)
{
    const int code = snap_nvme_errno(result);
    const bool is_lost = code == -ENOTCONN && sw_nvme_state_of(n->controller) != SW_NVME_LIVE;
    return is_lost ? -EAGAIN : code;
}

static bool is_all_sent(const struct snap_io *io)
{
    return io->private[RESULT] || io->private[SENT] == io->bytes;
}

static void part_done(void *argument, const struct sw_nvme_result *result)
{
    struct snap_io *io = argument;
    struct snap_nvme *n = (struct snap_nvme *)(uintptr_t)io->next;
    if (result->status && !io->private[RESULT])
        io->private[RESULT] = (uint64_t)(int64_t)io_errno_of(n, result);
    n->parts--;
    if (!--io->private[PARTS] && io != n->parting)
        nvme_end_io(n, io);
}

static enum sw_nvme_status send_part(struct snap_nvme *n, struct snap_io *io, uint32_t *bytes)
{
    *bytes = mover_min_u32(io->bytes - (uint32_t)io->private[SENT], n -> part_bytes);
    struct sw_nvme_io part = {.nsid = n->nsid,
                              .lba = (io->offset + io->private[SENT]) / n->block_bytes,
                              .blocks = *bytes / n->block_bytes,
                              .done = part_done,
                              .arg = io};
    if (io->kind == SNAP_IO_FLUSH)
        return sw_nvme_flush(n->queue, &part);
    const struct snap_memory *memory = snap_memories_find(&n->memories, io->data, io->bytes);
    part.data = (uint8_t *)io->data + io->private[SENT];
    part.bytes = *bytes;
    part.mem = memory->registration;
    return io->kind == SNAP_IO_READ ? sw_nvme_read(n->queue, &part)
                                    : sw_nvme_write(n->queue, &part);
}

/* Its owner is known by io.next while it is in no line. */
static void begin_parting(struct snap_nvme *n, struct snap_io *io)
{
    io->next = (struct snap_io *)(uintptr_t)n;
    io->private[PARTS] = io->private[RESULT] = io->private[SENT] = 0;
    io->private[BEFORE] = n->written;
    n->parting = io;
}

static void nvme_send_parts(struct snap_nvme *n)
{
    while (n->phase == SNAP_NVME_UP && !n->medium.error) {
        struct snap_io *io = n->parting;
        uint32_t bytes;
        if (!io && !(io = snap_line_take(&n->waiting)))
            return;
        if (io != n->parting)
            begin_parting(n, io);
        const enum sw_nvme_status status = send_part(n, io, &bytes);
        if (status == SW_NVME_AGAIN)
            return;
        if (status) {
            const struct sw_nvme_result result = {.status = status};
            io->private[RESULT] = (uint64_t)(int64_t)io_errno_of(n, &result);
        } else {
            io->private[PARTS]++;
            io->private[SENT] += bytes;
            n->parts++;
        }
        if (!is_all_sent(io))
            continue;
        n->parting = NULL;
        if (!io->private[PARTS])
            nvme_end_io(n, io);
        if (status)
            return;
    }
}

/* The connection is gone, and with it all parts. */
static void stop_parting(struct snap_nvme *n)
{
    struct snap_io *io = n->parting;
    n->parting = NULL;
    if (!io || io->private[PARTS])
        return; /* its parts end it */
    io->private[RESULT] = (uint64_t)(int64_t)-EAGAIN;
    nvme_end_io(n, io);
}

/* ---- beats ---- */

static void nvme_claim_was_written(void *argument, const struct sw_nvme_result *result)
{
    struct snap_nvme *n = argument;
    n->is_beating = false;
    if (result->status && snap_nvme_errno(result) == -ESTALE)
        snap_medium_fail(&n->medium, -ESTALE, "another writer has taken over %.100s",
                         n->medium.name);
}

static void write_beat(struct snap_nvme *n)
{
    n->claim.beat++;
    snap_claim_encode(&n->claim, n->own);
    const struct sw_nvme_io io =
        snap_nvme_own_io(n, 0, n->claim_at, SNAP_BLOCK_BYTES, nvme_claim_was_written);
    n->is_beating = !sw_nvme_write(n->queue, &io);
}

static void nvme_claim_was_read(void *argument, const struct sw_nvme_result *result)
{
    struct snap_nvme *n = argument;
    struct snap_claim there;
    n->is_looking = false;
    if (result->status)
        return;
    if (snap_claim_decode(n->own + SNAP_BLOCK_BYTES, &there) && snap_claim_is_of(&n->claim, &there))
        write_beat(n);
    else
        snap_medium_fail(&n->medium, -ESTALE, "another writer has taken over %.100s: %s",
                         n->medium.name, there.writer);
}

static void nvme_keep_claim(struct snap_nvme *n)
{
    const uint64_t now_ns = mover_now_ns();
    if (n->phase != SNAP_NVME_UP || !n->medium.is_writable || n->medium.error || n->is_beating ||
        n->is_looking || now_ns < n->beat_ns + BEAT_MS * NS_PER_MS)
        return;
    n->beat_ns = now_ns;
    if (n->has_reservations)
        return write_beat(n);
    const struct sw_nvme_io io =
        snap_nvme_own_io(n, 1, n->claim_at, SNAP_BLOCK_BYTES, nvme_claim_was_read);
    n->is_looking = !sw_nvme_read(n->queue, &io);
}

/* ---- the medium ---- */

static int nvme_use(struct snap_medium *medium, void *data, size_t bytes)
{
    struct snap_nvme *n = nvme_of(medium);
    struct sw_nvme_mem *mem = NULL;
    if (mover_is_forked(&n->guard))
        return -EPERM;
    if (n->memories.count == SNAP_MEMORIES_MAX)
        return -ENOSPC;
    if (n->phase > SNAP_NVME_CONNECTING && sw_nvme_mem_register(n->controller, data, bytes, &mem))
        return -ENOMEM;
    const int code = snap_memories_add(&n->memories, data, bytes, mem);
    if (code && mem)
        sw_nvme_mem_release(mem);
    return code;
}

static void nvme_submit(struct snap_medium *medium, struct snap_io *io)
{
    struct snap_nvme *n = nvme_of(medium);
    const int refusal =
        mover_is_forked(&n->guard) ? -EPERM : snap_io_refusal(medium, &n->memories, io);
    if (refusal)
        snap_ended_add(&n->ended, io, refusal);
    else
        snap_line_add(&n->waiting, io);
}

/* The descriptor of a queue goes with its connection, out of the set by itself. */
static void watch_queue(struct snap_nvme *n)
{
    struct epoll_event event = {.events = EPOLLIN};
    const int fd = n->queue ? sw_nvme_queue_fd(n->queue) : -1;
    if (fd >= 0 && n->fd_of_queue < 0)
        epoll_ctl(n->medium.fd, EPOLL_CTL_ADD, fd, &event);
    n->fd_of_queue = fd;
}

static void nvme_end_if_failed(struct snap_nvme *n)
{
    if (!n->medium.error)
        return;
    snap_nvme_disconnect(n);
    stop_parting(n);
    snap_ended_add_all(&n->ended, &n->waiting, n->medium.error);
    watch_queue(n);
}

static void nvme_poll(struct snap_medium *medium)
{
    struct snap_nvme *n = nvme_of(medium);
    if (!mover_is_forked(&n->guard) && !medium->error) {
        snap_nvme_step(n);
        if (n->phase == SNAP_NVME_DOWN)
            stop_parting(n);
        nvme_keep_claim(n);
        nvme_send_parts(n);
        nvme_end_if_failed(n);
        watch_queue(n);
    }
    snap_ended_tell(&n->ended);
}

static bool nvme_arm(struct snap_medium *medium)
{
    struct snap_nvme *n = nvme_of(medium);
    uint64_t count;
    if (n->ended.first || mover_is_forked(&n->guard) || medium->error)
        return !n->ended.first;
    (void)!read(n->timer_fd, &count, sizeof(count));
    nvme_send_parts(n);
    if (n->ended.first || medium->error)
        return false;
    return n->phase != SNAP_NVME_UP || sw_nvme_queue_arm(n->queue);
}

static void free_nvme(struct snap_nvme *n)
{
    snap_nvme_disconnect(n);
    if (n->medium.fd >= 0)
        close(n->medium.fd);
    if (n->timer_fd >= 0)
        close(n->timer_fd);
    if (!mover_is_forked(&n->guard))
        free(n->own);
    mover_fork_guard_close(&n->guard);
    free(n);
}

static void nvme_close(struct snap_medium *medium)
{
    struct snap_nvme *n = nvme_of(medium);
    if (!mover_is_forked(&n->guard)) {
        if (!medium->error && n->phase == SNAP_NVME_UP)
            snap_nvme_let_go(n);
        snap_medium_fail(medium, -ECANCELED, "%.150s was closed", medium->name);
        nvme_end_if_failed(n);
    }
    while (n->ended.first)
        snap_ended_tell(&n->ended);
    free_nvme(n);
}

static const struct snap_medium_ops nvme_ops = {.use = nvme_use,
                                                .submit = nvme_submit,
                                                .poll = nvme_poll,
                                                .arm = nvme_arm,
                                                .close = nvme_close};

/* ---- opening ---- */

/* "NQN" or "NQN/NSID". */
static void cut_nsid(struct snap_nvme *n)
{
    char *slash = strrchr(n->place.name, '/');
    if (!slash || !slash[1] || strspn(slash + 1, "0123456789") != strlen(slash + 1))
        return;
    *slash = 0;
    n->nsid = (uint32_t)strtoul(slash + 1, NULL, 10);
}

static void nvme_set_options(struct snap_nvme *n, const struct snap_medium_options *options)
{
    n->stall_ms = options->stall_timeout_ms ? options->stall_timeout_ms : STALL_DEFAULT_MS;
    sw_nvme_options_init(&n->options);
    n->options.traddr = n->place.address;
    n->options.trsvcid = n->place.port;
    n->options.subsysnqn = n->place.name;
    n->options.host_traddr = options->local;
    n->options.queue_size = QUEUE_SIZE;
    n->options.ctrl_loss_tmo_s = 0; /* the next connection is another host's */
    n->options.io_timeout_ms = n->stall_ms / 2 + 1;
    if (options->connect_timeout_ms)
        n->options.connect_timeout_ms = options->connect_timeout_ms;
}

static int nvme_make_descriptor(struct snap_nvme *n)
{
    const struct timespec each = {.tv_nsec = TICK_MS * (long)NS_PER_MS};
    const struct itimerspec every = {each, each};
    struct epoll_event event = {.events = EPOLLIN};
    n->medium.fd = epoll_create1(EPOLL_CLOEXEC);
    n->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (n->medium.fd < 0 || n->timer_fd < 0 || timerfd_settime(n->timer_fd, 0, &every, NULL) ||
        epoll_ctl(n->medium.fd, EPOLL_CTL_ADD, n->timer_fd, &event))
        return -errno;
    watch_queue(n);
    return 0;
}

int snap_nvme_open(const char *rest, const struct snap_medium_options *options, char *error,
                   size_t error_bytes, struct snap_medium **medium)
{
    static const char form[] = "nvme:ADDR[:PORT]/NQN[/NSID]";
    struct snap_nvme *n = calloc(1, sizeof(*n));
    if (!n)
        return -ENOMEM;
    n->timer_fd = n->medium.fd = n->fd_of_queue = -1;
    n->medium.ops = &nvme_ops;
    n->medium.is_writable = options->is_writable;
    n->medium.reads_back = true; /* what the network, and the target, made of it */
    snprintf(n->medium.name, sizeof(n->medium.name), "nvme:%s", rest);
    snprintf(error, error_bytes, "out of memory");
    int code = snap_place_parse(rest, form, error, error_bytes, &n->place);
    if (!code && (!mover_fork_guard_open(&n->guard) ||
                  !(n->own = aligned_alloc(SNAP_BLOCK_BYTES,
                                           SNAP_NVME_OWN_BLOCKS * (size_t)SNAP_BLOCK_BYTES))))
        code = -ENOMEM;
    if (!code) {
        cut_nsid(n);
        nvme_set_options(n, options);
        code = snap_nvme_look(n, error, error_bytes);
    }
    if (!code)
        code = snap_nvme_take(n, options, error, error_bytes);
    if (!code && (code = nvme_make_descriptor(n)))
        snprintf(error, error_bytes, "%s", strerror(-code));
    if (code) {
        free_nvme(n);
        return code;
    }
    *medium = &n->medium;
    return 0;
}
