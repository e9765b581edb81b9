/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/medium/peer.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/minmax.h"
#include "common/rdma/resolve.h"
#include "common/rdma/watch.h"
#include "common/time/clock.h"
#include "common/time/deadline.h"
#include "snapshot/medium/kinds.h"

enum { BUSY_MS = 1000, ABSENT_MS = 2000, OPEN_S_MAX = 600, CLOSE_MS = 100 };

static struct snap_peer *peer_of(struct snap_medium *medium)
{
    return (struct snap_peer *)medium;
}

static bool peer_is_idle(const struct snap_peer *peer)
{
    return !peer->slots_busy && !peer->waiting.first && !peer->asks.first;
}

void snap_peer_fail(struct snap_peer *peer, int code, const char *format, ...)
{
    char why[sizeof(peer->medium.why)];
    va_list values;
    va_start(values, format);
    vsnprintf(why, sizeof(why), format, values);
    va_end(values);
    snap_medium_fail(&peer->medium, code, "%s", why);
    snap_peer_drop(peer, why); /* the device has no memory of ios any more */
    snap_ended_add_all(&peer->ended, &peer->waiting, peer->medium.error);
    snap_ended_add_all(&peer->ended, &peer->asks, peer->medium.error);
}

/* ---- time ---- */

/* When the next thing is due that no event tells of; UINT64_MAX: nothing. */
static uint64_t peer_due_ns(const struct snap_peer *peer)
{
    uint64_t due_ns = UINT64_MAX;
    if (peer->medium.error)
        return due_ns;
    if (peer->stage == SNAP_PEER_AWAY)
        due_ns = peer->retry_ns;
    else if (peer->stage != SNAP_PEER_OPEN)
        due_ns = peer->begun_ns + peer->connect_ns;
    if (!peer->is_asked && peer->again_ns)
        due_ns = mover_min_u64(due_ns, peer->again_ns);
    if (peer->was_open && !peer_is_idle(peer))
        due_ns = mover_min_u64(due_ns, peer->progress_ns + peer->stall_ns);
    return due_ns;
}

static void set_peer_timer(const struct snap_peer *peer)
{
    const uint64_t due_ns = peer_due_ns(peer);
    const uint64_t at_ns = due_ns == UINT64_MAX ? 0 : due_ns;
    const struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(at_ns / NS_PER_S), .tv_nsec = (long)(at_ns % NS_PER_S)}};
    timerfd_settime(peer->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void peer_take_timers(struct snap_peer *peer)
{
    const uint64_t now_ns = mover_now_ns();
    if (peer->medium.error)
        return;
    if (peer->was_open && !peer_is_idle(peer) && now_ns >= peer->progress_ns + peer->stall_ns)
        return snap_peer_fail(peer, -ETIMEDOUT, "%s has confirmed nothing for %llu ms%s%s",
                              peer->where, (unsigned long long)(peer->stall_ns / NS_PER_MS),
                              *peer->last_failure ? ": " : "", peer->last_failure);
    if (peer->stage == SNAP_PEER_AWAY && now_ns >= peer->retry_ns)
        snap_peer_connect(peer);
    else if (peer->stage != SNAP_PEER_AWAY && peer->stage != SNAP_PEER_OPEN &&
             now_ns >= peer->begun_ns + peer->connect_ns)
        snap_peer_drop(peer, "it does not answer");
}

static void peer_go_on(struct snap_peer *peer)
{
    snap_peer_take_events(peer);
    peer_take_timers(peer);
    snap_peer_push(peer);
    snap_peer_ask(peer);
}

/* ---- the medium ---- */

static int peer_use(struct snap_medium *medium, void *data, size_t bytes)
{
    struct snap_peer *peer = peer_of(medium);
    struct snap_memories *memories = &peer->memories;
    const int code = snap_memories_add(memories, data, bytes, NULL);
    if (code || snap_peer_register(peer, &memories->of[memories->count - 1]))
        return code;
    memories->count--;
    return -ENOMEM;
}

static void peer_submit(struct snap_medium *medium, struct snap_io *io)
{
    struct snap_peer *peer = peer_of(medium);
    const int refusal =
        mover_is_forked(&peer->guard) ? -EPERM : snap_io_refusal(medium, &peer->memories, io);
    if (refusal) {
        snap_ended_add(&peer->ended, io, refusal);
        return;
    }
    if (peer_is_idle(peer))
        peer->progress_ns = mover_now_ns();
    if (io->kind == SNAP_IO_WRITE || io->kind == SNAP_IO_READ)
        snap_line_add(&peer->waiting, io);
    else
        snap_line_add(&peer->asks, io);
    snap_peer_push(peer);
    snap_peer_ask(peer);
}

static void peer_poll(struct snap_medium *medium)
{
    struct snap_peer *peer = peer_of(medium);
    if (!mover_is_forked(&peer->guard))
        peer_go_on(peer);
    snap_ended_tell(&peer->ended);
}

static bool peer_arm(struct snap_medium *medium)
{
    struct snap_peer *peer = peer_of(medium);
    uint64_t count;
    if (mover_is_forked(&peer->guard))
        return !peer->ended.first;
    (void)!read(peer->timer_fd, &count, sizeof(count));
    set_peer_timer(peer);
    return mover_queue_arm(&peer->connection.queue) && !peer->ended.first;
}

static void peer_sleep(struct snap_peer *peer, uint64_t until_ns)
{
    struct pollfd ready = {.fd = peer->medium.fd, .events = POLLIN};
    uint64_t count;
    (void)!read(peer->timer_fd, &count, sizeof(count));
    set_peer_timer(peer);
    if (mover_queue_arm(&peer->connection.queue))
        poll(&ready, 1, mover_ms_until(until_ns, mover_now_ns(), 1000));
}

/* The server may have the next writer at once where it is told. */
static void peer_say_goodbye(struct snap_peer *peer)
{
    const uint64_t until_ns = mover_now_ns() + CLOSE_MS * NS_PER_MS;
    while (peer->stage == SNAP_PEER_OPEN && peer->is_asked && mover_now_ns() < until_ns) {
        peer_sleep(peer, until_ns);
        snap_peer_take_events(peer);
    }
    if (peer->stage != SNAP_PEER_OPEN || peer->is_asked || !peer->medium.is_writable)
        return;
    snap_peer_ask_close(peer);
    while (peer->stage == SNAP_PEER_OPEN && peer->is_asked && mover_now_ns() < until_ns) {
        peer_sleep(peer, until_ns);
        snap_peer_take_events(peer);
    }
}

static void free_peer(struct snap_peer *peer, bool is_forked)
{
    if (!is_forked)
        snap_peer_link_free(peer);
    if (peer->timer_fd >= 0)
        close(peer->timer_fd);
    if (peer->medium.fd >= 0)
        close(peer->medium.fd);
    mover_fork_guard_close(&peer->guard);
    free(peer);
}

static void peer_close(struct snap_medium *medium)
{
    struct snap_peer *peer = peer_of(medium);
    const bool is_forked = mover_is_forked(&peer->guard);
    if (!is_forked) {
        peer_say_goodbye(peer);
        snap_peer_fail(peer, -ECANCELED, "%.150s was closed", medium->name);
    }
    while (peer->ended.first)
        snap_ended_tell(&peer->ended);
    free_peer(peer, is_forked);
}

static const struct snap_medium_ops peer_ops = {.use = peer_use,
                                                .submit = peer_submit,
                                                .poll = peer_poll,
                                                .arm = peer_arm,
                                                .close = peer_close};

/* ---- opening ---- */

static int peer_find_addresses(struct snap_peer *peer, const struct snap_place *place,
                               const char *local, char *error, size_t error_bytes)
{
    const char *port = place->port ? place->port : SNAP_WIRE_PORT;
    const char *wrong = mover_resolve_peer(place->address, port, &peer->to);
    const char *wrong_here = local ? mover_resolve(local, NULL, AI_PASSIVE, &peer->from) : NULL;
    peer->has_from = local;
    snprintf(peer->where, sizeof(peer->where), "%.60s port %s", place->address, port);
    if (!wrong && !wrong_here)
        return 0;
    snprintf(error, error_bytes, "%.100s: %s", wrong ? place->address : local,
             wrong ? wrong : wrong_here);
    return -EINVAL;
}

static int peer_set_up(struct snap_peer *peer, const char *rest,
                       const struct snap_medium_options *options, char *error, size_t error_bytes)
{
    struct snap_place place;
    struct snap_wire_request *open = &peer->open;
    int code = snap_place_parse(rest, "peer:ADDR[:PORT]/NAME", error, error_bytes, &place);
    if (!code && !snap_wire_name_is_fit(place.name)) {
        snprintf(error, error_bytes,
                 "\"%.100s\" is no name of a volume: UTF-8 of up to %d bytes, "
                 "without '/', and no '.' first",
                 place.name, SNAP_WIRE_NAME_BYTES - 1);
        code = -EINVAL;
    }
    if (!code)
        code = peer_find_addresses(peer, &place, options->local, error, error_bytes);
    if (code)
        return code;
    *open = (struct snap_wire_request){
        .type = SNAP_WIRE_OPEN,
        .wishes = (options->is_writable ? SNAP_WIRE_WRITE : 0) |
                  (options->is_writable && options->bytes ? SNAP_WIRE_CREATE : 0) |
                  (options->take_over ? SNAP_WIRE_TAKE_OVER : 0),
        .bytes = options->bytes};
    snprintf(open->name, sizeof(open->name), "%s", place.name);
    snprintf(peer->name, sizeof(peer->name), "%s", place.name);
    snprintf(open->writer, sizeof(open->writer), "%s", options->writer ? options->writer : "");
    peer->medium.is_writable = peer->medium.checks = options->is_writable;
    peer->connect_ns = options->connect_timeout_ms * NS_PER_MS;
    peer->stall_ns = options->stall_timeout_ms * NS_PER_MS;
    snprintf(error, error_bytes, "%.150s: %s", rest, "the system has no room for it");
    if (getrandom(open->session, sizeof(open->session), 0) != sizeof(open->session))
        return -EIO;
    peer->medium.fd = epoll_create1(EPOLL_CLOEXEC);
    peer->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (peer->medium.fd < 0 || peer->timer_fd < 0 ||
        !mover_watch(peer->medium.fd, peer->timer_fd, NULL) || !mover_fork_guard_open(&peer->guard))
        return -errno;
    return 0;
}

/* A server that is asked answers for as long as it is busy getting memory. One that is not there
 * yet gets a moment. */
static int peer_await_open(struct snap_peer *peer, char *error, size_t error_bytes)
{
    const uint64_t begin_ns = mover_now_ns(), last_ns = begin_ns + OPEN_S_MAX * NS_PER_S;
    const uint64_t absent_ns = mover_min_u64(peer->connect_ns, ABSENT_MS * NS_PER_MS);
    peer->busy_until_ns = begin_ns + mover_min_u64(peer->connect_ns, BUSY_MS * NS_PER_MS);
    snap_peer_connect(peer);
    while (!peer->medium.error && peer->stage != SNAP_PEER_OPEN) {
        const uint64_t now_ns = mover_now_ns();
        const uint64_t heard_ns = peer->progress_ns ? peer->progress_ns : begin_ns;
        if (now_ns >= last_ns || now_ns >= heard_ns + peer->connect_ns ||
            (peer->stage == SNAP_PEER_AWAY && now_ns >= begin_ns + absent_ns))
            snap_peer_fail(peer, -ETIMEDOUT, "%s",
                           *peer->last_failure ? peer->last_failure : "it does not answer");
        peer_sleep(peer, now_ns + 100 * NS_PER_MS);
        peer_go_on(peer);
    }
    *peer->last_failure = 0;
    if (peer->medium.error)
        snprintf(error, error_bytes, "%s", peer->medium.why);
    return peer->medium.error;
}

int snap_peer_open(const char *rest, const struct snap_medium_options *options, char *error,
                   size_t error_bytes, struct snap_medium **medium)
{
    struct snap_peer *peer = calloc(1, sizeof(*peer));
    if (!peer)
        return -ENOMEM;
    peer->medium = (struct snap_medium){.ops = &peer_ops, .fd = -1};
    peer->timer_fd = -1;
    int code = peer_set_up(peer, rest, options, error, error_bytes);
    if (!code)
        code = peer_await_open(peer, error, error_bytes);
    if (code)
        free_peer(peer, false);
    else
        *medium = &peer->medium;
    return code;
}
