/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/log.h"
#include "base/minmax.h"
#include "device/nic/netdev.h"
#include "link/connections.h"
#include "link/engine.h"
#include "link/iwarp/iwarp.h"
#include "link/iwarp/linger.h"
#include "link/iwarp/notes.h"
#include "link/iwarp/socket.h"
#include "rdmacm/connections/event.h"
#include "rdmacm/connections/route.h"
#include "rdmacm/iwarp/callers.h"
#include "rdmacm/iwarp/iwarp.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/agent.h"
#include "transport/iwarp/iwarp.h"
#include "wire/iwarp/crc32c.h"

#define READ_BYTES 1024u   /* more than the start has */
#define GROUP 64           /* sockets that are asked at once */
#define FPDU_BYTES 128u    /* of a Terminate without headers */
#define UNFETCHED_PARTS 4u /* of descriptors, one in so many */

/* ---- events ---- */

/* Programs see at most what fits into the event. */
static void tell_private(struct rdma_ucm_conn_param *conn, const struct sw_iwarp_start *start)
{
    const uint16_t most = UINT8_MAX, len = start->peer.private_len;
    conn->private_data_len = (uint8_t)(len < most ? len : most);
    if (conn->private_data_len)
        memcpy(conn->private_data, start->peer.private_data, conn->private_data_len);
}

static void tell_outcome(struct sw_ucm_id *id, const struct sw_ucm_stream *stream,
                         enum sw_ucm_event_type type, int status)
{
    struct sw_ucm_event *event = sw_ucm_event_new(id, type, status);
    if (!event)
        return;
    struct rdma_ucm_conn_param *conn = &event->response.param.conn;
    if (stream->start.state == SW_IWARP_OPEN || stream->start.state == SW_IWARP_REJECTED)
        tell_private(conn, &stream->start);
    if (type == SW_UCM_ESTABLISHED_EVENT) {
        conn->responder_resources = (uint8_t)sw_min_u32(stream->start.terms.ird, UINT8_MAX);
        conn->initiator_depth = (uint8_t)sw_min_u32(stream->start.terms.ord, UINT8_MAX);
    }
    sw_ucm_event_send(event);
}

/* The connection did not come about. */
static void events_tell_failure(struct sw_ucm_stream *stream, enum sw_ucm_event_type type,
                                int status)
{
    struct sw_ucm_id *id = stream->id;
    tell_outcome(id, stream, type, status);
    sw_ucm_iwarp_forget(id);
}

/* By the kernel's table of what its devices report: cma_iw_handler(). */
static enum sw_ucm_event_type type_of(int status)
{
    switch (-status) {
    case ECONNRESET:
    case ECONNREFUSED:
        return SW_UCM_REJECTED_EVENT;
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return SW_UCM_UNREACHABLE_EVENT;
    default:
        return SW_UCM_CONNECT_ERROR_EVENT;
    }
}

/* ---- the active side ---- */

static int events_status_of(enum sw_iwarp_start_failure failure)
{
    switch (failure) {
    case SW_IWARP_FAILURE_TIMEOUT:
        return -ETIMEDOUT;
    case SW_IWARP_FAILURE_CLOSED:
        return -ECONNRESET;
    case SW_IWARP_FAILURE_MALFORMED:
    case SW_IWARP_FAILURE_MARKERS:
    case SW_IWARP_FAILURE_NONE:
        break;
    }
    return -EPROTO;
}

/* A Terminate is the first and the last FPDU of a connection that cannot be. */
static void send_terminate(struct sw_ucm_stream *stream)
{
    static struct sw_iwarp machine; /* guarded by sw_rdmacm_lock */
    const struct sw_iwarp_config config = {.fpdu_max = SW_IWARP_FPDU_LEAST, .is_initiator = true};
    struct sw_request ring[1];
    struct sw_iwarp_emission emission;
    uint8_t *fpdu = malloc(FPDU_BYTES);
    if (!fpdu)
        return;
    sw_iwarp_init(&machine, &config, ring, 1);
    sw_iwarp_refuse(&machine, stream->start.cause);
    sw_iwarp_next(&machine, &emission);
    memcpy(fpdu, emission.head, emission.head_len);
    const bool crc = stream->start.terms.crc;
    const uint32_t sum = crc ? sw_crc32c_add(0, fpdu, emission.head_len) : 0;
    const uint32_t len = emission.head_len + sw_fpdu_finish(sum, sw_iwarp_ulpdu_len(&emission), crc,
                                                            fpdu + emission.head_len);
    sw_iwarp_linger(sw_ucm_stream_take_fd(stream), fpdu, len, true);
}

/* The peer knows revision 1 alone: on a new connection. */
static void call_again(struct sw_ucm_stream *stream)
{
    struct sw_ucm_id *id = stream->id;
    struct sw_iwarp_start_config config = stream->start.config;
    config.revision = 1;
    config.is_peer_to_peer = false;
    config.private_data = id->private_data;
    config.private_len = id->private_len;
    id->stream = NULL;
    sw_ucm_stream_free(stream);
    const int rc = sw_ucm_iwarp_call(id, &config);
    if (rc)
        sw_ucm_event_tell(id, type_of(rc), rc);
}

static void open_connection(struct sw_ucm_stream *stream, const uint8_t *bytes, size_t len)
{
    struct sw_ucm_id *id = stream->id;
    const int rc = sw_ucm_iwarp_give_qp(stream, bytes, len);
    if (rc) {
        events_tell_failure(stream, SW_UCM_CONNECT_ERROR_EVENT, rc);
        return;
    }
    id->responder_resources = (uint8_t)stream->start.terms.ird;
    id->initiator_depth = (uint8_t)stream->start.terms.ord;
    tell_outcome(id, stream, SW_UCM_ESTABLISHED_EVENT, 0);
}

static void judge_reply(struct sw_ucm_stream *stream, const uint8_t *bytes, size_t len)
{
    switch (stream->start.state) {
    case SW_IWARP_OPEN:
        open_connection(stream, bytes, len);
        break;
    case SW_IWARP_REJECTED:
        events_tell_failure(stream, SW_UCM_REJECTED_EVENT, -ECONNRESET);
        break;
    case SW_IWARP_OLDER:
        call_again(stream);
        break;
    case SW_IWARP_REFUSED:
        send_terminate(stream);
        events_tell_failure(stream, SW_UCM_CONNECT_ERROR_EVENT, -EPROTO);
        break;
    case SW_IWARP_FAILED: {
        const int status = events_status_of(stream->start.failure);
        events_tell_failure(stream, type_of(status), status);
        break;
    }
    case SW_IWARP_ASKED:
    case SW_IWARP_AWAITED:
    case SW_IWARP_REQUESTED:
    case SW_IWARP_ACCEPTED:
        break;
    }
}

/* Sends the request, which works once the socket is connected. */
static void events_send_request(struct sw_ucm_stream *stream)
{
    struct sw_iwarp_start *start = &stream->start;
    const ssize_t sent = sw_iwarp_socket_send(stream->fd, start->out, start->out_len);
    if (sent == -EAGAIN)
        return;
    if (sent < 0) {
        events_tell_failure(stream, type_of((int)sent), (int)sent);
        return;
    }
    start->out_len = 0; /* shorter than any socket's buffer */
    sw_ucm_stream_watch(stream, false);
}

static void step_caller(struct sw_ucm_stream *stream)
{
    uint8_t bytes[READ_BYTES];
    size_t used, len;
    if (stream->start.out_len) {
        events_send_request(stream);
        return;
    }
    sw_ucm_stream_read_start(stream, bytes, sizeof(bytes), &used, &len);
    judge_reply(stream, bytes + used, len - used);
}

/* ---- the passive side ---- */

static void events_set_address(union sw_address *out, const struct sockaddr_storage *from)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const struct sockaddr_in6 *in6 = (const void *)from;
    memset(out, 0, sizeof(*out));
    if (from->ss_family == AF_INET6 && !memcmp(&in6->sin6_addr, mapped, sizeof(mapped))) {
        out->in.sin_family = AF_INET;
        out->in.sin_port = in6->sin6_port;
        memcpy(&out->in.sin_addr, (const uint8_t *)&in6->sin6_addr + 12, 4);
        return;
    }
    memcpy(out, from, from->ss_family == AF_INET ? sizeof(out->in) : sizeof(out->in6));
}

static struct sw_netdev *device_of_address(const union sw_address *address)
{
    union ibv_gid gid;
    sw_address_to_gid(address, gid.raw);
    return sw_netdev_iwarp_at(&gid);
}

/* The device that the connection came to. One of the loopback's addresses that no device has is its
 * device's, as where such an address is called; there may be none. */
static struct sw_netdev *device_at(const union sw_address *address)
{
    union sw_address loopback = {.family = AF_INET};
    struct sw_netdev *dev = device_of_address(address);
    if (dev || !sw_address_is_loopback(address))
        return dev;
    sw_address_set_loopback(&loopback);
    dev = device_of_address(&loopback);
    for (int i = 0; !dev && i < sw_netdev_count(); i++)
        if (sw_netdev_is_iwarp(sw_netdev_get(i)))
            dev = sw_netdev_get(i);
    return dev;
}

static struct sw_ucm_id *make_id(struct sw_ucm_stream *stream)
{
    struct sw_ucm_id *listener = stream->owner, *id;
    struct sw_netdev_info info;
    union sw_address src, dst;
    events_set_address(&src, &stream->own);
    events_set_address(&dst, &stream->peer);
    struct sw_netdev *dev = device_at(&src);
    if (!dev || sw_ucm_id_create(listener->channel, listener->port_space, IBV_QPT_RC, &id))
        return NULL;
    sw_netdev_read(dev, &info);
    id->src = src;
    id->dst = dst;
    id->dev = dev;
    id->ifindex = info.ifindex;
    sw_ucm_route_resolve(id);
    id->has_cm = true;
    id->state = SW_UCM_CONNECT;
    id->stream = stream;
    stream->id = id;
    stream->owner = NULL;
    return id;
}

static uint8_t depth_shown(const struct sw_mpa_frame *peer, uint16_t depth)
{
    if (!sw_mpa_is_enhanced(peer) || depth > SW_IWARP_DEPTH_MAX)
        return SW_IWARP_DEPTH_MAX; /* nothing was said, or more than anybody has here */
    return (uint8_t)depth;
}

/* ---- ends ---- */

static void events_hear_end(struct sw_ucm_stream *stream, int status)
{
    struct sw_ucm_id *id = stream->id;
    if (id && id->state == SW_UCM_CONNECT) {
        id->state = SW_UCM_DISCONNECT;
        if (stream->is_heard)
            sw_ucm_event_tell(id, SW_UCM_DISCONNECTED_EVENT, 0);
        else
            sw_ucm_event_tell(id, SW_UCM_CONNECT_ERROR_EVENT, status ? status : -ECONNRESET);
    }
    if (id)
        id->stream = NULL;
    sw_ucm_stream_free(stream);
}

static void hear_locked(uint64_t cookie, enum sw_iwarp_news news, int status)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_stream *stream = sw_ucm_stream_find(cookie);
    if (stream && news == SW_IWARP_ENDED) {
        events_hear_end(stream, status);
    } else if (stream && stream->id && !stream->is_heard) {
        stream->is_heard = true;
        tell_outcome(stream->id, stream, SW_UCM_ESTABLISHED_EVENT, 0);
    }
}

static void hear_news(uint64_t cookie, enum sw_iwarp_news news, int status)
{
    pthread_mutex_lock(&sw_rdmacm_lock);
    hear_locked(cookie, news, status);
    pthread_mutex_unlock(&sw_rdmacm_lock);
}

static bool is_same_peer(const struct sw_ucm_stream *one, const struct sw_ucm_stream *other)
{
    struct in6_addr peers[2];
    sw_ucm_stream_peer(one, &peers[0]);
    sw_ucm_stream_peer(other, &peers[1]);
    return IN6_ARE_ADDR_EQUAL(&peers[0], &peers[1]);
}

/* Connections whose sockets are asked at once. */
struct group {
    struct pollfd sockets[GROUP];
    uint32_t qpns[GROUP];
    nfds_t count;
};

/* The kernel tells which of them have ended, at 60 ns for each of 64 TCP sockets on a Xeon. Reading
 * from each takes three times as long, without the locks around it, and the peer may have
 * thousands. */
static void take_in_ended(struct group *group)
{
    const nfds_t count = group->count;
    group->count = 0;
    if (poll(group->sockets, count, 0) <= 0)
        return;
    for (nfds_t i = 0; i < count; i++)
        if (group->sockets[i].revents)
            sw_iwarp_look(group->qpns[i]);
}

/* A peer that ended a connection before it asked for this one: its program is told in that order,
 * as with siw. The end may still be unread, where the program polls, or read and not told yet. */
static void hear_ends_before(const struct sw_ucm_stream *asking)
{
    struct group group;
    group.count = 0;
    for (struct sw_ucm_stream *stream = sw_ucm_stream_next(0); stream;
         stream = sw_ucm_stream_next(stream->index + 1)) {
        if (stream->role != SW_UCM_STREAM_RUNS || !stream->id || !is_same_peer(stream, asking))
            continue;
        group.sockets[group.count] = (struct pollfd){.fd = stream->lent, .events = POLLRDHUP};
        group.qpns[group.count++] = stream->id->qpn;
        if (group.count == GROUP)
            take_in_ended(&group);
    }
    take_in_ended(&group);
    sw_iwarp_tell_notes(hear_locked);
}

/* ---- asking the program ---- */

/* Each request that the program has not fetched has a descriptor. */
static bool events_has_room(const struct sw_ucm_id *listener)
{
    const uint32_t unfetched = listener->backlog_max - listener->backlog;
    return listener->backlog && unfetched < sw_fds_share(UNFETCHED_PARTS, UINT32_MAX);
}

bool sw_ucm_iwarp_tell_request(struct sw_ucm_stream *stream)
{
    struct sw_ucm_id *listener = stream->owner, *id;
    const struct sw_mpa_frame *peer = &stream->start.peer;
    if (!events_has_room(listener))
        return false;
    hear_ends_before(stream);
    sw_ucm_stream_leave_crowd(stream);
    struct sw_ucm_event *event = sw_ucm_event_new(listener, SW_UCM_CONNECT_REQUEST_EVENT, 0);
    id = event ? make_id(stream) : NULL;
    if (!id) {
        free(event);
        sw_ucm_stream_free(stream);
        return true;
    }
    struct rdma_ucm_conn_param *conn = &event->response.param.conn;
    id->responder_resources = depth_shown(peer, peer->ord);
    id->initiator_depth = depth_shown(peer, peer->ird);
    tell_private(conn, &stream->start);
    conn->responder_resources = id->responder_resources;
    conn->initiator_depth = id->initiator_depth;
    event->response.id = id->handle;
    event->request = id;
    id->request = event;
    listener->backlog--;
    sw_ucm_channel_push(listener->channel, event);
    return true;
}

/* ---- the engine ---- */

static void step_stream(struct sw_ucm_stream *stream)
{
    switch (stream->role) {
    case SW_UCM_STREAM_LISTENS:
        sw_ucm_callers_accept(stream);
        break;
    case SW_UCM_STREAM_CALLS:
        step_caller(stream);
        break;
    case SW_UCM_STREAM_IS_CALLED:
        sw_ucm_caller_ready(stream);
        break;
    case SW_UCM_STREAM_RUNS:
        break;
    }
}

static void on_stream(uint64_t what)
{
    pthread_mutex_lock(&sw_rdmacm_lock);
    struct sw_ucm_stream *stream = sw_ucm_stream_at((uint32_t)(what >> 4));
    if (stream && stream->is_watched)
        step_stream(stream);
    pthread_mutex_unlock(&sw_rdmacm_lock);
}

static void events_run_timer(struct sw_ucm_stream *stream, uint64_t now_ns)
{
    if (stream->role == SW_UCM_STREAM_IS_CALLED) {
        sw_ucm_caller_is_late(stream, now_ns);
        return;
    }
    sw_iwarp_start_tick(&stream->start, now_ns);
    if (stream->role == SW_UCM_STREAM_CALLS)
        judge_reply(stream, NULL, 0);
    else
        sw_ucm_stream_free(stream);
}

uint64_t sw_ucm_iwarp_tick(uint64_t now_ns)
{
    sw_rdmacm_assert_locked();
    uint64_t due_ns = sw_ucm_callers_tick(now_ns);
    for (struct sw_ucm_stream *stream = sw_ucm_stream_next(0), *next; stream; stream = next) {
        const uint32_t index = stream->index;
        if (now_ns >= stream->start.due_ns)
            events_run_timer(stream, now_ns);
        stream = sw_ucm_stream_at(index); /* NULL: it has ended */
        if (stream)
            due_ns = sw_min_u64(due_ns, stream->start.due_ns);
        next = sw_ucm_stream_next(index + 1);
    }
    return due_ns;
}

void sw_ucm_iwarp_accepted(struct sw_ucm_id *id, uint64_t uid)
{
    sw_rdmacm_assert_locked();
    id->uid = uid;
    if (id->stream && id->stream->is_heard)
        tell_outcome(id, id->stream, SW_UCM_ESTABLISHED_EVENT, 0);
}

void sw_ucm_iwarp_start(void)
{
    sw_engine_handle(SW_WATCH_IWARP_CM, on_stream);
    sw_iwarp_set_user(hear_news);
    sw_connections_set_starts(sw_ucm_stream_report);
}

void sw_ucm_iwarp_fork_child(void)
{
    sw_ucm_stream_fork_child();
}
