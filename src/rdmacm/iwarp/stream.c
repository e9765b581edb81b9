/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/iwarp/stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "link/engine.h"
#include "link/iwarp/socket.h"
#include "rdmacm/lock.h"

#define STREAMS 65536u /* as many as there are IDs */

static struct sw_ucm_stream *streams[STREAMS];
static uint32_t next_index, end_index; /* none is there from end_index on */
static uint64_t serial;

void *sw_ucm_stream_tag(const struct sw_ucm_stream *stream)
{
    return (void *)((uintptr_t)stream->index << 4);
}

/* The lowest free one but for those that were just given back, so that the table stays short. */
static bool stream_claim_index(uint32_t *index)
{
    for (uint32_t tried = 0; tried < STREAMS; tried++) {
        const uint32_t at = next_index++ % STREAMS;
        if (streams[at])
            continue;
        *index = at;
        return true;
    }
    return false;
}

struct sw_ucm_stream *sw_ucm_stream_new(enum sw_ucm_stream_role role, int fd)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_stream *stream = calloc(1, sizeof(*stream));
    if (!stream || !stream_claim_index(&stream->index)) {
        free(stream);
        close(fd);
        return NULL;
    }
    stream->role = role;
    stream->fd = fd;
    stream->cookie = ++serial << 16 | stream->index;
    streams[stream->index] = stream;
    if (end_index <= stream->index)
        end_index = stream->index + 1;
    return stream;
}

void sw_ucm_stream_free(struct sw_ucm_stream *stream)
{
    if (!stream)
        return;
    sw_ucm_stream_leave_crowd(stream);
    if (stream->fd >= 0)
        close(sw_ucm_stream_take_fd(stream));
    streams[stream->index] = NULL;
    while (end_index && !streams[end_index - 1])
        end_index--;
    if (next_index > end_index)
        next_index = end_index;
    free(stream);
}

void sw_ucm_stream_leave_crowd(struct sw_ucm_stream *stream)
{
    if (stream->crowd)
        sw_callers_remove(stream->crowd, &stream->caller);
    stream->crowd = NULL;
}

void sw_ucm_stream_peer(const struct sw_ucm_stream *stream, struct in6_addr *out)
{
    if (stream->peer.ss_family == AF_INET6) {
        *out = ((const struct sockaddr_in6 *)&stream->peer)->sin6_addr;
        return;
    }
    *out = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(out->s6_addr + 12, &((const struct sockaddr_in *)&stream->peer)->sin_addr, 4);
}

void sw_ucm_stream_read_start(struct sw_ucm_stream *stream, uint8_t *bytes, size_t room,
                              size_t *used, size_t *len)
{
    const ssize_t got = sw_iwarp_socket_receive(stream->fd, bytes, room);
    *used = *len = 0;
    if (got > 0) {
        *len = (size_t)got;
        *used = sw_iwarp_start_take(&stream->start, bytes, *len);
    } else if (got != -EAGAIN && got != -EINTR) {
        sw_iwarp_start_closed(&stream->start);
    }
}

struct sw_ucm_stream *sw_ucm_stream_at(uint32_t index)
{
    sw_rdmacm_assert_locked();
    return index < STREAMS ? streams[index] : NULL;
}

struct sw_ucm_stream *sw_ucm_stream_find(uint64_t cookie)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_stream *stream = sw_ucm_stream_at((uint32_t)(cookie % STREAMS));
    return stream && stream->cookie == cookie ? stream : NULL;
}

struct sw_ucm_stream *sw_ucm_stream_next(uint32_t index)
{
    sw_rdmacm_assert_locked();
    while (index < end_index && !streams[index])
        index++;
    return index < end_index ? streams[index] : NULL;
}

void sw_ucm_stream_watch(struct sw_ucm_stream *stream, bool for_room)
{
    if (!stream->is_watched)
        sw_engine_watch(stream->fd, sw_ucm_stream_tag(stream), SW_WATCH_IWARP_CM);
    stream->is_watched = true;
    sw_engine_watch_room(stream->fd, sw_ucm_stream_tag(stream), SW_WATCH_IWARP_CM, for_room);
}

void sw_ucm_stream_unwatch(struct sw_ucm_stream *stream)
{
    if (stream->is_watched)
        sw_engine_unwatch(stream->fd);
    stream->is_watched = false;
}

int sw_ucm_stream_take_fd(struct sw_ucm_stream *stream)
{
    sw_rdmacm_assert_locked();
    const int fd = stream->fd;
    sw_ucm_stream_unwatch(stream);
    stream->fd = -1;
    return fd;
}

void sw_ucm_stream_fork_child(void)
{
    for (uint32_t i = 0; i < end_index; i++) {
        if (!streams[i])
            continue;
        sw_ucm_stream_leave_crowd(streams[i]);
        if (streams[i]->fd >= 0)
            close(streams[i]->fd);
        free(streams[i]);
        streams[i] = NULL;
    }
    next_index = end_index = 0;
}
