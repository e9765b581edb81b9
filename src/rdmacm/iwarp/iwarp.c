/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/iwarp/iwarp.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/nic/netdev.h"
#include "link/iwarp/iwarp.h"
#include "link/iwarp/linger.h"
#include "link/iwarp/socket.h"
#include "rdmacm/connections/event.h"
#include "rdmacm/mads/agent.h"
#include "wire/bytes.h"

#define PRIVATE_MAX 252u /* siw takes no more */
#define PORT 1
#define TCP_BACKLOG_LEAST 1024 /* sockets whose request has not come count there, too */

bool sw_ucm_is_iwarp(const struct sw_ucm_id *id)
{
    return id->dev && sw_netdev_is_iwarp(id->dev);
}

static struct sw_iwarp_start_config config_of(const struct rdma_ucm_conn_param *param)
{
    return (struct sw_iwarp_start_config){
        .revision = 2,
        .wants_crc = sw_iwarp_wants_crc(),
        .wants_large = true,
        .is_peer_to_peer = true,
        .rtr = SW_MPA_RTR_WRITE | SW_MPA_RTR_READ | SW_MPA_RTR_SEND,
        .ird = param->responder_resources,
        .ord = param->initiator_depth,
        .private_len = param->private_data_len,
        .private_data = param->private_data,
    };
}

void sw_ucm_iwarp_plan(const struct sw_ucm_stream *stream)
{
    if (stream->start.due_ns != UINT64_MAX)
        sw_agent_plan(stream->start.due_ns);
}

/* ---- the active side ---- */

static void set_socket_address(struct sockaddr_storage *out, const union sw_address *from)
{
    memset(out, 0, sizeof(*out));
    memcpy(out, from, sw_address_size(from));
}

int sw_ucm_iwarp_call(struct sw_ucm_id *id, const struct sw_iwarp_start_config *config)
{
    sw_rdmacm_assert_locked();
    union sw_address src = id->src, dst = id->dst;
    if (dst.family != AF_INET && dst.family != AF_INET6)
        return -EAFNOSUPPORT;
    if (sw_address_is_any(&dst))
        sw_address_set_loopback(&dst);
    const socklen_t len = (socklen_t)sw_address_size(&dst);
    const int fd = sw_iwarp_socket_connect(&src.any, len, &dst.any, len);
    if (fd < 0)
        return fd;
    struct sw_ucm_stream *stream = sw_ucm_stream_new(SW_UCM_STREAM_CALLS, fd);
    if (!stream)
        return -ENOMEM;
    set_socket_address(&stream->own, &src);
    set_socket_address(&stream->peer, &dst);
    sw_iwarp_start_connect(&stream->start, config, sw_clock_ns());
    stream->id = id;
    id->stream = stream;
    sw_ucm_stream_watch(stream, true);
    sw_ucm_iwarp_plan(stream);
    return 0;
}

int sw_ucm_iwarp_connect(struct sw_ucm_id *id, const struct rdma_ucm_conn_param *param)
{
    sw_rdmacm_assert_locked();
    if (id->qp_type != IBV_QPT_RC)
        return -EOPNOTSUPP;
    if (param->private_data_len > PRIVATE_MAX || !sw_iwarp_can_begin(id->qpn))
        return -EINVAL;
    const struct sw_iwarp_start_config config = config_of(param);
    id->responder_resources = param->responder_resources;
    id->initiator_depth = param->initiator_depth;
    memcpy(id->private_data, param->private_data, param->private_data_len);
    id->private_len = param->private_data_len;
    return sw_ucm_iwarp_call(id, &config);
}

/* ---- the passive side ---- */

int sw_ucm_iwarp_listen(struct sw_ucm_id *id, int backlog)
{
    sw_rdmacm_assert_locked();
    const bool is_wanted = id->dev ? sw_ucm_is_iwarp(id) : sw_netdev_has_kind(SW_NETDEV_IWARP);
    if (!is_wanted || id->port_space != RDMA_PS_TCP)
        return sw_ucm_is_iwarp(id) ? -EOPNOTSUPP : 0;
    if (id->src.family != AF_INET && id->src.family != AF_INET6)
        return id->dev ? -EAFNOSUPPORT : 0;
    const int fd = sw_iwarp_socket_listen(&id->src.any, (socklen_t)sw_address_size(&id->src),
                                          backlog < TCP_BACKLOG_LEAST ? TCP_BACKLOG_LEAST : backlog,
                                          id->address_family_only);
    if (fd < 0)
        return fd;
    struct sw_ucm_stream *stream = sw_ucm_stream_new(SW_UCM_STREAM_LISTENS, fd);
    if (!stream)
        return -ENOMEM;
    stream->start.due_ns = UINT64_MAX;
    stream->id = id;
    id->stream = stream;
    sw_ucm_stream_watch(stream, false);
    return 0;
}

int sw_ucm_iwarp_follow(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    const bool is_wanted = sw_netdev_has_kind(SW_NETDEV_IWARP);
    if (is_wanted && !id->stream)
        return sw_ucm_iwarp_listen(id, (int)id->backlog);
    if (!is_wanted)
        sw_ucm_iwarp_forget(id);
    return 0;
}

/* The reply, or a refusal, is shorter than any socket's buffer. */
static int send_start(struct sw_ucm_stream *stream)
{
    const ssize_t sent = sw_iwarp_socket_send(stream->fd, stream->start.out, stream->start.out_len);
    if (sent < 0)
        return (int)sent;
    return sent == stream->start.out_len ? 0 : -ECONNRESET;
}

int sw_ucm_iwarp_give_qp(struct sw_ucm_stream *stream, const uint8_t *bytes, size_t len)
{
    sw_rdmacm_assert_locked();
    const bool calls = stream->role == SW_UCM_STREAM_CALLS;
    const struct sw_iwarp_begin begin = {
        .fd = stream->fd,
        .terms = stream->start.terms,
        .is_initiator = calls,
        .awaits_first = !calls && stream->start.terms.rtr,
        .cookie = stream->cookie,
        .bytes = bytes,
        .len = len,
    };
    stream->is_heard = calls || !stream->start.terms.rtr;
    stream->start.due_ns = UINT64_MAX;
    sw_ucm_stream_unwatch(stream);
    const int rc = sw_iwarp_begin(stream->id->qpn, &begin);
    if (rc)
        return rc;
    stream->lent = stream->fd;
    stream->fd = -1;
    stream->role = SW_UCM_STREAM_RUNS;
    return 0;
}

int sw_ucm_iwarp_accept(struct sw_ucm_id *id, const struct rdma_ucm_conn_param *param)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_stream *stream = id->stream;
    if (!param->valid || param->private_data_len > PRIVATE_MAX || !stream ||
        stream->start.state != SW_IWARP_REQUESTED || !sw_iwarp_can_begin(id->qpn))
        return -EINVAL;
    const struct sw_iwarp_start_config config = config_of(param);
    sw_iwarp_start_accept(&stream->start, &config, sw_clock_ns());
    int rc = send_start(stream);
    if (!rc)
        rc = sw_ucm_iwarp_give_qp(stream, NULL, 0);
    if (rc) {
        sw_ucm_iwarp_forget(id);
        return rc;
    }
    id->responder_resources = (uint8_t)stream->start.terms.ird;
    id->initiator_depth = (uint8_t)stream->start.terms.ord;
    return 0;
}

int sw_ucm_iwarp_reject(struct sw_ucm_id *id, const void *private_data, uint8_t len)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_stream *stream = id->stream;
    if (!stream || stream->start.state != SW_IWARP_REQUESTED ||
        stream->role != SW_UCM_STREAM_IS_CALLED || len > PRIVATE_MAX)
        return -EINVAL;
    sw_iwarp_start_reject(&stream->start, private_data, len);
    uint8_t *reply = malloc(stream->start.out_len);
    if (reply)
        memcpy(reply, stream->start.out, stream->start.out_len);
    /* Its request was read, so the kernel brings it the reply: nothing is waited for. */
    sw_iwarp_linger(sw_ucm_stream_take_fd(stream), reply, reply ? stream->start.out_len : 0, false);
    sw_ucm_iwarp_forget(id);
    return 0;
}

/* ---- both ---- */

int sw_ucm_iwarp_disconnect(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_stream *stream = id->stream;
    if (!stream || stream->role == SW_UCM_STREAM_LISTENS)
        return 0; /* it has ended already */
    if (stream->role == SW_UCM_STREAM_RUNS)
        sw_iwarp_hang_up(id->qpn, stream->cookie);
    else
        sw_ucm_iwarp_forget(id);
    return 0;
}

/* As the kernel has it, where a connection does not say what it may be asked for before it
 * is asked for. */
int sw_ucm_iwarp_init_qp_attr(const struct sw_ucm_id *id, struct ib_uverbs_qp_attr *out)
{
    out->qp_attr_mask = IBV_QP_PORT;
    out->port_num = PORT;
    if (id->has_cm && !id->stream)
        return -EINVAL;
    if (out->qp_state == IBV_QPS_RTS && id->has_cm)
        return 0;
    if (id->has_cm && out->qp_state != IBV_QPS_INIT && out->qp_state != IBV_QPS_RTR)
        return -EINVAL;
    out->qp_attr_mask |= IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
    if (id->has_cm)
        out->qp_access_flags =
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    return 0;
}

/* A listener's connections that have not asked yet go with it. */
static void forget_callers(const struct sw_ucm_id *listener)
{
    struct sw_ucm_stream *stream, *next;
    for (stream = sw_ucm_stream_next(0); stream; stream = next) {
        next = sw_ucm_stream_next(stream->index + 1);
        if (stream->owner == listener)
            sw_ucm_stream_free(stream);
    }
}

void sw_ucm_iwarp_forget(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_stream *stream = id->stream;
    if (!stream)
        return;
    id->stream = NULL;
    stream->id = NULL;
    if (stream->role == SW_UCM_STREAM_LISTENS)
        forget_callers(id);
    if (stream->role != SW_UCM_STREAM_RUNS)
        sw_ucm_stream_free(stream);
    else
        sw_iwarp_hang_up(id->qpn, stream->cookie); /* the note of its end frees it */
}
