/* SPDX-License-Identifier: BSD-2-Clause */
/* pair.h, the connection of iWARP's queue pairs. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "verbs_util/pair.h"

#define RESOLVE_MS 5000
#define EVENT_MS 20000

static struct rdma_cm_id *expect_event(struct vu_cm *cm, enum rdma_cm_event_type type)
{
    struct pollfd readable = {.fd = cm->events->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    VU_CHECK(poll(&readable, 1, EVENT_MS) == 1, "no %s", rdma_event_str(type));
    VU_EQ(rdma_get_cm_event(cm->events, &event), 0);
    VU_CHECK(event->event == type, "%s (%d), not %s", rdma_event_str(event->event), event->status,
             rdma_event_str(type));
    struct rdma_cm_id *id = event->id;
    VU_EQ(rdma_ack_cm_event(event), 0);
    return id;
}

static struct sockaddr_in loopback_port(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static uint16_t listen_anywhere(struct vu_cm *cm)
{
    struct sockaddr_in address = loopback_port(0);
    VU_EQ(rdma_create_id(cm->events, &cm->listener, NULL, RDMA_PS_TCP), 0);
    VU_EQ(rdma_bind_addr(cm->listener, (struct sockaddr *)&address), 0);
    VU_EQ(rdma_listen(cm->listener, 1), 0);
    return ntohs(rdma_get_src_port(cm->listener));
}

static void answer_call(struct vu_cm *cm, struct rdma_conn_param *param)
{
    cm->id = expect_event(cm, RDMA_CM_EVENT_CONNECT_REQUEST);
    VU_EQ(rdma_accept(cm->id, param), 0);
}

static void make_call(struct vu_cm *cm, uint16_t port, struct rdma_conn_param *param)
{
    struct sockaddr_in address = loopback_port(port);
    VU_EQ(rdma_create_id(cm->events, &cm->id, NULL, RDMA_PS_TCP), 0);
    VU_EQ(rdma_resolve_addr(cm->id, NULL, (struct sockaddr *)&address, RESOLVE_MS), 0);
    expect_event(cm, RDMA_CM_EVENT_ADDR_RESOLVED);
    VU_EQ(rdma_resolve_route(cm->id, RESOLVE_MS), 0);
    expect_event(cm, RDMA_CM_EVENT_ROUTE_RESOLVED);
    VU_EQ(rdma_connect(cm->id, param), 0);
}

/* One of the two calls, by chance. */
static bool is_caller(int sock)
{
    uint64_t mine, other;
    VU_EQ(getrandom(&mine, sizeof(mine), 0), sizeof(mine));
    vu_put(sock, &mine, sizeof(mine));
    vu_get(sock, &other, sizeof(other));
    return mine < other;
}

static struct rdma_conn_param connect_param(const struct vu_ep *ep, const struct vu_conn *conn)
{
    return (struct rdma_conn_param){.initiator_depth = conn->rd_atomic,
                                    .responder_resources = conn->dest_rd_atomic,
                                    .qp_num = ep->qp->qp_num,
                                    .srq = ep->qp->srq != NULL};
}

static struct rdma_conn_param begin_connect(struct vu_ep *ep, const struct vu_conn *conn)
{
    vu_cm_end(&ep->cm);
    ep->cm.events = rdma_create_event_channel();
    VU_CHECK(ep->cm.events, "rdma_create_event_channel: %s", strerror(errno));
    return connect_param(ep, conn);
}

uint16_t vu_cm_listen(struct vu_ep *ep)
{
    begin_connect(ep, &vu_conn_default);
    return listen_anywhere(&ep->cm);
}

void vu_cm_call(struct vu_ep *ep, uint16_t port, const struct vu_conn *conn)
{
    struct rdma_conn_param param = begin_connect(ep, conn);
    make_call(&ep->cm, port, &param);
}

void vu_cm_answer(struct vu_ep *ep, const struct vu_conn *conn)
{
    struct rdma_conn_param param = connect_param(ep, conn);
    answer_call(&ep->cm, &param);
}

void vu_cm_connected(struct vu_ep *ep)
{
    expect_event(&ep->cm, RDMA_CM_EVENT_ESTABLISHED);
}

void vu_cm_connect(struct vu_ep *ep, int sock, const struct vu_conn *conn)
{
    struct rdma_conn_param param = begin_connect(ep, conn);
    uint16_t port;
    if (is_caller(sock)) {
        vu_get(sock, &port, sizeof(port));
        make_call(&ep->cm, port, &param);
    } else {
        port = listen_anywhere(&ep->cm);
        vu_put(sock, &port, sizeof(port));
        answer_call(&ep->cm, &param);
    }
    expect_event(&ep->cm, RDMA_CM_EVENT_ESTABLISHED);
}

void vu_cm_connect_here(struct vu_ep *ep)
{
    struct vu_ep *other = calloc(1, sizeof(*other));
    VU_CHECK(other, "out of memory");
    vu_ep_create(ep->dev, NULL, other);
    vu_ep_init(ep, &vu_conn_default);
    vu_ep_init(other, &vu_conn_default);
    struct rdma_conn_param param = begin_connect(ep, &vu_conn_default),
                           answer = begin_connect(other, &vu_conn_default);
    ep->cm.other = other;
    make_call(&ep->cm, listen_anywhere(&other->cm), &param);
    answer_call(&other->cm, &answer);
    expect_event(&ep->cm, RDMA_CM_EVENT_ESTABLISHED);
    expect_event(&other->cm, RDMA_CM_EVENT_ESTABLISHED);
}

void vu_cm_end(struct vu_cm *cm)
{
    if (!cm->events)
        return;
    VU_EQ(rdma_destroy_id(cm->id), 0);
    if (cm->listener)
        VU_EQ(rdma_destroy_id(cm->listener), 0);
    rdma_destroy_event_channel(cm->events);
    if (cm->other)
        vu_ep_destroy(cm->other);
    free(cm->other);
    memset(cm, 0, sizeof(*cm));
}
