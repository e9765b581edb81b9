/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/iwarp/callers.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "device/queue/counters.h"
#include "link/engine_pause.h"
#include "link/iwarp/socket.h"
#include "rdmacm/connections/id.h"
#include "rdmacm/iwarp/iwarp.h"
#include "rdmacm/mads/agent.h"

#define ACCEPTS_MAX 8               /* at once: earlier callers are heard between them */
#define RETRY_NS (5 * SW_NS_PER_MS) /* for a listener whose backlog is full */
#define READ_BYTES 1024u            /* more than the start has */

#define SILENT_MAX 256u
#define SILENT_PARTS 16u /* of descriptors, one in so many */
#define WAITING_MAX 1024u
#define WAITING_PARTS 8u
#define WAITING_NS (3 * SW_IWARP_REPLY_NS) /* siw gives up long before */
#define ADDRESS_PARTS 2u
#define GRACE_NS (100 * SW_NS_PER_MS)

static struct sw_ucm_stream *stream_of(struct sw_caller *caller)
{
    return (struct sw_ucm_stream *)((char *)caller - offsetof(struct sw_ucm_stream, caller));
}

/* It has asked for nothing that was granted: nothing of it shall stay in the kernel, either. */
static void refuse_stream(struct sw_ucm_stream *stream)
{
    sw_counter_add(NULL, SW_IWARP_STRANGERS);
    sw_iwarp_socket_abort(sw_ucm_stream_take_fd(stream));
    sw_ucm_stream_free(stream);
}

static void turn_away_stream(struct sw_caller *caller)
{
    refuse_stream(stream_of(caller));
}

static bool hear_stream(struct sw_caller *caller);
static const struct sw_callers_rule silent_rule = {
    .places_max = SILENT_MAX,
    .fds_parts = SILENT_PARTS,
    .address_parts = ADDRESS_PARTS,
    .grace_ns = GRACE_NS,
    .hear = hear_stream,
    .turn_away = turn_away_stream,
};
static const struct sw_callers_rule waiting_rule = {
    .places_max = WAITING_MAX,
    .fds_parts = WAITING_PARTS,
    .address_parts = ADDRESS_PARTS,
    .patience_ns = WAITING_NS,
    .turn_away = turn_away_stream,
};
static struct sw_callers silent = {.rule = &silent_rule}, waiting = {.rule = &waiting_rule};
static uint64_t retry_ns; /* when those that wait ask again */

static void join_crowd(struct sw_ucm_stream *stream, struct sw_callers *crowd)
{
    struct in6_addr from;
    const uint64_t now_ns = sw_clock_ns();
    sw_ucm_stream_peer(stream, &from);
    sw_callers_make_room(crowd, &from, now_ns);
    sw_callers_add(crowd, &stream->caller, &from, now_ns);
    stream->crowd = crowd;
}

/* The caller that asked first is told of first. */
static void ask_again(void)
{
    for (struct sw_caller *at = waiting.oldest, *newer; at; at = newer) {
        newer = at->newer;
        sw_ucm_iwarp_tell_request(stream_of(at));
    }
}

static void ask_listener(struct sw_ucm_stream *stream)
{
    sw_ucm_stream_unwatch(stream);
    stream->start.due_ns = UINT64_MAX;
    sw_ucm_stream_leave_crowd(stream);
    ask_again();
    if (sw_ucm_iwarp_tell_request(stream))
        return;
    if (!waiting.count)
        retry_ns = sw_clock_ns() + RETRY_NS;
    join_crowd(stream, &waiting);
    sw_agent_plan(retry_ns);
}

uint64_t sw_ucm_callers_tick(uint64_t now_ns)
{
    if (waiting.count && now_ns >= retry_ns) {
        ask_again();
        sw_callers_tend(&waiting, now_ns);
        retry_ns = now_ns + RETRY_NS;
    }
    return waiting.count ? retry_ns : UINT64_MAX;
}

void sw_ucm_caller_ready(struct sw_ucm_stream *stream)
{
    uint8_t bytes[READ_BYTES];
    size_t used, len;
    if (stream->start.state != SW_IWARP_AWAITED)
        return;
    sw_ucm_stream_read_start(stream, bytes, sizeof(bytes), &used, &len);
    if (stream->start.state == SW_IWARP_REQUESTED) {
        ask_listener(stream);
        return;
    }
    if (stream->start.state != SW_IWARP_FAILED)
        return;
    sw_counter_add(NULL, SW_IWARP_STRANGERS);
    sw_callers_doubt(&silent, &stream->caller.from, sw_clock_ns());
    if (stream->start.out_len) /* a refusal: of markers */
        sw_iwarp_socket_send(stream->fd, stream->start.out, stream->start.out_len);
    sw_ucm_stream_free(stream);
}

static bool hear_stream(struct sw_caller *caller)
{
    struct sw_ucm_stream *stream = stream_of(caller);
    const uint64_t cookie = stream->cookie;
    sw_ucm_caller_ready(stream);
    stream = sw_ucm_stream_find(cookie);
    return stream && stream->crowd == &silent;
}

void sw_ucm_caller_is_late(struct sw_ucm_stream *stream, uint64_t now_ns)
{
    sw_iwarp_start_tick(&stream->start, now_ns);
    sw_callers_doubt(&silent, &stream->caller.from, now_ns);
    refuse_stream(stream);
}

/* NULL: there is none, or no room for it. */
static struct sw_ucm_stream *accept_one(const struct sw_ucm_stream *listener)
{
    struct sockaddr_storage own, peer;
    const int fd = sw_iwarp_socket_accept(listener->fd, &own, &peer);
    if (sw_accept_is_short(fd))
        sw_engine_pause(listener->fd, sw_ucm_stream_tag(listener), SW_WATCH_IWARP_CM);
    if (fd < 0)
        return NULL;
    struct sw_ucm_stream *stream = sw_ucm_stream_new(SW_UCM_STREAM_IS_CALLED, fd);
    if (!stream)
        return NULL;
    stream->own = own;
    stream->peer = peer;
    stream->owner = listener->id;
    return stream;
}

/* Requests are not read here: the engine tells of sockets in the order in which peers ask. One may
 * ask a moment after it was accepted, and the next one that is accepted may have asked before the
 * look at it; read at once, that would be told first. Programs count on the order (ib_send_bw -R
 * with several queue pairs). */
void sw_ucm_callers_accept(struct sw_ucm_stream *listener)
{
    static const struct sw_iwarp_start_config config = {.revision = 2};
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        if (sw_callers_are_awaited(&silent, sw_clock_ns())) {
            sw_engine_pause_briefly(listener->fd, sw_ucm_stream_tag(listener), SW_WATCH_IWARP_CM);
            return;
        }
        struct sw_ucm_stream *stream = accept_one(listener);
        if (!stream)
            return;
        sw_iwarp_start_listen(&stream->start, &config, sw_clock_ns());
        join_crowd(stream, &silent);
        sw_ucm_stream_watch(stream, false);
        sw_ucm_iwarp_plan(stream);
    }
}
