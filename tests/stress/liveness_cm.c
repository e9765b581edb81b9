/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection whose client is killed: liveness_cm SERVER_ADDRESS
 * The client is the only process of its host, so nobody there is left to say DREQ; and nothing was
 * sent over the connection, so the server has no request to fail. It must be told all the same.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "verbs_util/pair.h"

enum { PORT = 7479, RESOLVE_MS = 30000, PATIENCE_MS = 30000, TOLD_MS = 3000 };

static struct rdma_cm_id *expect_event(struct rdma_event_channel *events,
                                       enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    struct pollfd readable = {.fd = events->fd, .events = POLLIN};
    VU_EQ(poll(&readable, 1, PATIENCE_MS), 1);
    VU_EQ(rdma_get_cm_event(events, &event), 0);
    VU_EQ(event->event, type);
    struct rdma_cm_id *id = event->id;
    VU_EQ(rdma_ack_cm_event(event), 0);
    return id;
}

static struct sockaddr_in address_of(const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    VU_EQ(inet_pton(AF_INET, text, &address.sin_addr), 1);
    return address;
}

static struct ibv_cq *set_up(struct rdma_cm_id *id)
{
    struct ibv_cq *cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
    VU_TRUE(cq);
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    VU_EQ(rdma_create_qp(id, NULL, &init), 0);
    return cq;
}

static void serve(int sock, void *arg)
{
    struct sockaddr_in address = address_of(arg);
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
    struct rdma_cm_id *listener;
    uint64_t killed_ms;
    VU_TRUE(events);
    VU_EQ(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP), 0);
    VU_EQ(rdma_bind_addr(listener, (struct sockaddr *)&address), 0);
    VU_EQ(rdma_listen(listener, 1), 0);
    vu_barrier(sock);
    struct rdma_cm_id *id = expect_event(events, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct ibv_cq *cq = set_up(id);
    VU_EQ(ibv_post_recv(id->qp, &wr, &bad), 0);
    VU_EQ(rdma_accept(id, &param), 0);
    expect_event(events, RDMA_CM_EVENT_ESTABLISHED);
    vu_barrier(sock);
    vu_get(sock, &killed_ms, sizeof(killed_ms));
    expect_event(events, RDMA_CM_EVENT_DISCONNECTED);
    const uint64_t took_ms = vu_now_ms() - killed_ms;
    printf("told after %llu ms\n", (unsigned long long)took_ms);
    VU_CHECK(took_ms < TOLD_MS, "told after %llu ms", (unsigned long long)took_ms);
    vu_expect(cq, 1, IBV_WC_WR_FLUSH_ERR);
}

static void be_client(int sock, void *arg)
{
    struct sockaddr_in address = address_of(arg);
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    struct rdma_cm_id *id;
    char word = 'c';
    VU_TRUE(events);
    VU_EQ(rdma_create_id(events, &id, NULL, RDMA_PS_TCP), 0);
    VU_EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS), 0);
    expect_event(events, RDMA_CM_EVENT_ADDR_RESOLVED);
    VU_EQ(rdma_resolve_route(id, RESOLVE_MS), 0);
    expect_event(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
    set_up(id);
    VU_EQ(rdma_connect(id, &param), 0);
    expect_event(events, RDMA_CM_EVENT_ESTABLISHED);
    vu_put(sock, &word, 1);
    pause();
}

/* Has no device itself. */
static void kill_client(int sock, void *arg)
{
    int control[2];
    char word;
    vu_socketpair(control);
    vu_barrier(sock);
    const pid_t pid = vu_spawn(be_client, control[1], arg);
    vu_get(control[0], &word, 1);
    vu_barrier(sock);
    vu_sleep_ms(500);
    const uint64_t now_ms = vu_now_ms();
    VU_EQ(kill(pid, SIGKILL), 0);
    vu_put(sock, &now_ms, sizeof(now_ms));
    vu_reap(pid, 5);
}

int main(int argc, char **argv)
{
    VU_CHECK(argc == 2, "usage: liveness_cm SERVER_ADDRESS");
    return vu_run_pair(VU_PROCESSES, serve, kill_client, argv[1], 30);
}
