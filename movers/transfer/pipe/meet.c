/* SPDX-License-Identifier: BSD-2-Clause */
/* How a pipe comes about, and its end. The bytes that both sides say are in docs/pipe.md. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/rdma/listener.h"
#include "common/rdma/memory.h"
#include "common/rdma/resolve.h"
#include "common/time/clock.h"
#include "common/time/deadline.h"
#include "transfer/engine/status.h"
#include "transfer/pipe/pipe.h"

enum { MAGIC = 0x50495753, VERSION = 1, ASK_BYTES = 40, ANSWER_BYTES = 24, BACKLOG = 16 };
enum { NAP_MAX_MS = 1000 };

struct sw_pipe_listener {
    struct mover_fork_guard guard;
    struct rdma_event_channel *events;
    int timer_fd;
    struct mover_listener at;
};

/* ---- a pipe without a peer ---- */

static struct sw_pipe *make_pipe(void)
{
    struct sw_pipe *pipe = calloc(1, sizeof(*pipe));
    if (!pipe)
        return NULL;
    pipe->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    pipe->inbox = mover_pages(PIPE_INBOX_BYTES);
    pipe->outbox = mover_pages(PIPE_OUTBOX_BYTES);
    pipe->spin_us = PIPE_SPIN_US;
    pipe->in = (struct pipe_in){.ring = pipe->inbox + PIPE_AT_RING, .bytes = PIPE_RING_BYTES};
    if (mover_fork_guard_open(&pipe->guard) && pipe->epoll_fd >= 0 && pipe->inbox && pipe->outbox)
        return pipe;
    sw_pipe_close(pipe);
    return NULL;
}

void sw_pipe_close(struct sw_pipe *pipe)
{
    if (!mover_is_forked(&pipe->guard)) {
        if (pipe->connection.id && pipe->connection.was_up)
            rdma_disconnect(pipe->connection.id);
        if (pipe->connection.id && pipe->connection.id->qp)
            rdma_destroy_qp(pipe->connection.id);
        pipe->connection.was_up = false;
        if (pipe->inbox_mr)
            ibv_dereg_mr(pipe->inbox_mr);
        if (pipe->outbox_mr)
            ibv_dereg_mr(pipe->outbox_mr);
        if (pipe->pd)
            ibv_dealloc_pd(pipe->pd);
        mover_connection_destroy(&pipe->connection);
        free(pipe->inbox);
        free(pipe->outbox);
    } /* else pages that the parent's device has may not be given away by a child */
    if (pipe->epoll_fd >= 0)
        close(pipe->epoll_fd);
    mover_fork_guard_close(&pipe->guard);
    free(pipe);
}

/* Once the device is known. */
static bool meet_make_queue(struct sw_pipe *pipe)
{
    struct rdma_cm_id *id = pipe->connection.id;
    const unsigned reached =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    pipe->pd = ibv_alloc_pd(id->verbs);
    if (!pipe->pd)
        return false;
    pipe->inbox_mr = ibv_reg_mr(pipe->pd, pipe->inbox, PIPE_INBOX_BYTES, reached);
    pipe->outbox_mr = ibv_reg_mr(pipe->pd, pipe->outbox, PIPE_OUTBOX_BYTES, IBV_ACCESS_LOCAL_WRITE);
    if (!pipe->inbox_mr || !pipe->outbox_mr ||
        !mover_connection_queue(&pipe->connection, PIPE_SENDS + PIPE_RECEIVES))
        return false;
    const struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = PIPE_SENDS,
                                                  .max_recv_wr = PIPE_RECEIVES,
                                                  .max_send_sge = 1,
                                                  .max_recv_sge = 1}};
    if (!mover_queue_make_qp(&pipe->connection.queue, id, pipe->pd, &attr))
        return false;
    for (int i = 0; i < PIPE_RECEIVES; i++)
        if (!pipe_expect_bell(pipe))
            return false;
    return true;
}

/* ---- what both sides say ---- */

static void put_inbox(uint8_t *at, const struct sw_pipe *pipe)
{
    put_le64(at, (uintptr_t)pipe->inbox);
    put_le32(at + 8, pipe->inbox_mr->rkey);
    put_le32(at + 12, PIPE_RING_BYTES);
}

static void put_start(uint8_t *at)
{
    memset(at, 0, 8);
    put_le32(at, MAGIC);
    put_le16(at + 4, VERSION);
}

static bool is_start(const uint8_t *at, size_t bytes, size_t expected)
{
    return bytes >= expected && get_le32(at) == MAGIC && get_le16(at + 4) == VERSION;
}

static bool get_inbox(const uint8_t *at, struct sw_pipe *pipe)
{
    pipe->remote = get_le64(at);
    pipe->remote_key = get_le32(at + 8);
    pipe->out =
        (struct pipe_out){.mirror = pipe->outbox + PIPE_AT_MIRROR, .bytes = get_le32(at + 12)};
    return pipe->out.bytes == PIPE_RING_BYTES;
}

static struct rdma_conn_param make_param(const uint8_t *said, uint8_t bytes)
{
    return (struct rdma_conn_param){.private_data = said,
                                    .private_data_len = bytes,
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7};
}

/* ---- the side that asks ---- */

static enum mover_event await_event(struct sw_pipe *pipe, uint64_t deadline_ns)
{
    enum mover_event event;
    struct epoll_event ready;
    while ((event = mover_connection_next(&pipe->connection)) == MOVER_NOTHING) {
        const uint64_t now = mover_now_ns();
        if (now >= deadline_ns)
            break;
        epoll_wait(pipe->epoll_fd, &ready, 1, mover_ms_until(deadline_ns, now, NAP_MAX_MS));
    }
    return event;
}

static enum sw_xfer_status say_refusal(enum mover_event event, struct sw_xfer_error *error)
{
    switch (event) {
    case MOVER_NOTHING:
        return xfe_fail(error, SW_XFER_TIMEOUT, "the other side does not answer");
    case MOVER_REJECTED:
        return xfe_fail(error, SW_XFER_REFUSED, "the other side does not want this pipe");
    case MOVER_NO_DEVICE:
        return xfe_fail(error, SW_XFER_ADDRESS, "no RDMA device leads there");
    case MOVER_ROUTED:
    case MOVER_UP:
    case MOVER_NO_RDMA:
    case MOVER_FAULT:
    case MOVER_NO_ANSWER:
    case MOVER_ENDED:
    case MOVER_DEVICE_GONE:
        break;
    }
    return xfe_fail(error, SW_XFER_PEER_GONE, "the other side is not there");
}

static enum sw_xfer_status ask_for_pipe(struct sw_pipe *pipe, const struct sockaddr *to,
                                        const uint8_t *token, uint64_t deadline_ns,
                                        struct sw_xfer_error *error)
{
    uint8_t said[ASK_BYTES];
    if (mover_connection_start(&pipe->connection, pipe->epoll_fd, NULL, NULL, to))
        return xfe_fail(error, SW_XFER_ADDRESS,
                        "there is no RDMA device; a software one: sidewire run");
    enum mover_event event = await_event(pipe, deadline_ns);
    if (event != MOVER_ROUTED)
        return say_refusal(event, error);
    if (!meet_make_queue(pipe))
        return xfe_fail(error, SW_XFER_NO_MEMORY, "the RDMA device has no room: %s",
                        strerror(errno));
    put_start(said);
    memcpy(said + 8, token, SW_PIPE_TOKEN_BYTES);
    put_inbox(said + 24, pipe);
    struct rdma_conn_param param = make_param(said, sizeof(said));
    if (rdma_connect(pipe->connection.id, &param))
        return xfe_fail(error, SW_XFER_SYSTEM, "rdma_connect: %s", strerror(errno));
    event = await_event(pipe, deadline_ns);
    if (event != MOVER_UP)
        return say_refusal(event, error);
    const uint8_t *answer = pipe->connection.private_data;
    if (!is_start(answer, pipe->connection.private_bytes, ANSWER_BYTES) ||
        !get_inbox(answer + 8, pipe))
        return xfe_fail(error, SW_XFER_PROTOCOL, "the other side speaks another protocol");
    return SW_XFER_OK;
}

static enum sw_xfer_status meet_find_address(const char *address, const char *port,
                                             struct sockaddr_storage *found,
                                             struct sw_xfer_error *error)
{
    const char *wrong = mover_resolve(address, port, 0, found);
    return wrong ? xfe_fail(error, SW_XFER_ADDRESS, "%s port %s: %s", address, port, wrong)
                 : SW_XFER_OK;
}

enum sw_xfer_status sw_pipe_connect(const char *address, const char *port,
                                    const uint8_t token[SW_PIPE_TOKEN_BYTES], uint64_t deadline_ns,
                                    struct sw_xfer_error *error, struct sw_pipe **out)
{
    struct sockaddr_storage found;
    enum sw_xfer_status status = meet_find_address(address, port, &found, error);
    if (status)
        return status;
    struct sw_pipe *pipe = make_pipe();
    status = pipe ? ask_for_pipe(pipe, (struct sockaddr *)&found, token, deadline_ns, error)
                  : xfe_fail(error, SW_XFER_NO_MEMORY, "out of memory or descriptors");
    if (pipe && status)
        sw_pipe_close(pipe);
    if (!status)
        *out = pipe;
    return status;
}

/* ---- the side that is asked ---- */

static enum sw_xfer_status meet_start_listening(struct sw_pipe_listener *listener,
                                                const struct sockaddr *address,
                                                struct sw_xfer_error *error)
{
    char name[MOVER_LISTENER_TEXT];
    listener->events = mover_listener_events();
    if (!listener->events)
        return xfe_fail(error, SW_XFER_ADDRESS,
                        "there is no RDMA device; a software one: sidewire run");
    listener->timer_fd = mover_listener_timer();
    if (listener->timer_fd < 0)
        return xfe_fail(error, SW_XFER_SYSTEM, "out of descriptors: %s", strerror(errno));
    listener->at = (struct mover_listener){
        .events = listener->events, .timer_fd = listener->timer_fd, .backlog = BACKLOG};
    const int why = mover_listener_open(&listener->at, address);
    mover_listener_name(&listener->at, name);
    return why ? xfe_fail(error, SW_XFER_ADDRESS, "cannot listen at %s: %s%s", name, strerror(-why),
                          mover_listener_help(why))
               : SW_XFER_OK;
}

enum sw_xfer_status sw_pipe_listen(const char *address, const char *port,
                                   struct sw_xfer_error *error, struct sw_pipe_listener **out)
{
    struct sockaddr_storage found;
    enum sw_xfer_status status = meet_find_address(address, port ? port : "0", &found, error);
    if (status)
        return status;
    struct sw_pipe_listener *listener = calloc(1, sizeof(*listener));
    if (listener)
        listener->timer_fd = -1;
    status = listener && mover_fork_guard_open(&listener->guard)
                 ? meet_start_listening(listener, (struct sockaddr *)&found, error)
                 : xfe_fail(error, SW_XFER_NO_MEMORY, "out of memory");
    if (listener && status)
        sw_pipe_listener_close(listener);
    if (!status)
        *out = listener;
    return status;
}

uint16_t sw_pipe_listener_port(const struct sw_pipe_listener *listener)
{
    return mover_listener_port(&listener->at);
}

void sw_pipe_listener_close(struct sw_pipe_listener *listener)
{
    if (!mover_is_forked(&listener->guard)) {
        mover_listener_close(&listener->at);
        if (listener->events)
            rdma_destroy_event_channel(listener->events);
    }
    if (listener->timer_fd >= 0)
        close(listener->timer_fd);
    mover_fork_guard_close(&listener->guard);
    free(listener);
}

/* A caller with another token is refused at once. */
static struct rdma_cm_id *meet_next_request(struct sw_pipe_listener *listener, const uint8_t *token,
                                            struct mover_arrival *arrival)
{
    while (mover_listener_next(listener->events, arrival)) {
        const uint8_t *said = arrival->private_data;
        if (arrival->type != RDMA_CM_EVENT_CONNECT_REQUEST) {
            mover_listener_take(&listener->at, arrival);
            continue;
        }
        if (is_start(said, arrival->param.private_data_len, ASK_BYTES) &&
            !memcmp(said + 8, token, SW_PIPE_TOKEN_BYTES))
            return arrival->id;
        rdma_reject(arrival->id, NULL, 0);
        rdma_destroy_id(arrival->id);
    }
    return NULL;
}

static enum sw_xfer_status meet_answer_request(struct sw_pipe *pipe, const uint8_t *said,
                                               uint64_t deadline_ns, struct sw_xfer_error *error)
{
    uint8_t answer[ANSWER_BYTES];
    if (!get_inbox(said + 24, pipe))
        return xfe_fail(error, SW_XFER_PROTOCOL, "the other side has a ring that is none");
    if (!meet_make_queue(pipe))
        return xfe_fail(error, SW_XFER_NO_MEMORY, "the RDMA device has no room: %s",
                        strerror(errno));
    put_start(answer);
    put_inbox(answer + 8, pipe);
    struct rdma_conn_param param = make_param(answer, sizeof(answer));
    if (rdma_accept(pipe->connection.id, &param))
        return xfe_fail(error, SW_XFER_SYSTEM, "rdma_accept: %s", strerror(errno));
    const enum mover_event event = await_event(pipe, deadline_ns);
    return event == MOVER_UP ? SW_XFER_OK : say_refusal(event, error);
}

enum sw_xfer_status sw_pipe_accept(struct sw_pipe_listener *listener,
                                   const uint8_t token[SW_PIPE_TOKEN_BYTES], uint64_t deadline_ns,
                                   struct sw_xfer_error *error, struct sw_pipe **out)
{
    struct mover_arrival arrival;
    struct rdma_cm_id *id;
    if (mover_is_forked(&listener->guard))
        return xfe_fail(error, SW_XFER_FORKED, "%s", sw_xfer_status_text(SW_XFER_FORKED));
    while (!(id = meet_next_request(listener, token, &arrival))) {
        struct pollfd ready[] = {{.fd = listener->events->fd, .events = POLLIN},
                                 {.fd = listener->timer_fd, .events = POLLIN}};
        const uint64_t now = mover_now_ns();
        if (now >= deadline_ns)
            return xfe_fail(error, SW_XFER_TIMEOUT, "nobody has asked for this pipe");
        poll(ready, 2, mover_ms_until(deadline_ns, now, NAP_MAX_MS));
        if (mover_listener_is_due(listener->timer_fd))
            mover_listener_tick(&listener->at);
    }
    struct sw_pipe *pipe = make_pipe();
    if (!pipe || mover_connection_take(&pipe->connection, pipe->epoll_fd, NULL, id)) {
        rdma_reject(id, NULL, 0);
        rdma_destroy_id(id);
        if (pipe)
            sw_pipe_close(pipe);
        return xfe_fail(error, SW_XFER_NO_MEMORY, "out of memory or descriptors");
    }
    const enum sw_xfer_status status =
        meet_answer_request(pipe, arrival.private_data, deadline_ns, error);
    if (status)
        sw_pipe_close(pipe);
    else
        *out = pipe;
    return status;
}
