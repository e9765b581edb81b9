/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections set up and torn down per second, some on their way at once: by librdmacm alone, each
 * with a queue pair of its own, or by TCP. By RDMA the client disconnects, by TCP the server closes
 * at once: else what TCP keeps of the client's ports (TIME_WAIT) would slow it down. A connection
 * counts when the client has seen its end. Two processes that are started apart, one thread each.
 * The client prints one JSON object.
 *
 * usage: connect_rate rdma|rdma-cq|tcp PORT CONNECTIONS IN_FLIGHT HELD [ADDRESS]
 * rdma-cq: each connection has a completion queue of its own, else all of a side share one;
 * HELD: connections that are set up before and stay; with ADDRESS: the client.
 */
#include "endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WINDOW_MAX 1024u
#define BACKLOG 1024
#define RESOLVE_MS 5000

struct options {
    bool is_tcp, own_cq;
    uint16_t port;
    unsigned long connections, window, held;
    const char *address;
};

static struct options options;
static struct rdma_event_channel *channel;
static struct ibv_pd *pd; /* of all connections of this side */
static struct ibv_cq *shared_cq;

static void connect_must(int failed, const char *what)
{
    if (failed)
        bench_die("%s: %s", what, strerror(errno));
}

static struct sockaddr_in connect_address_of(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (options.address)
        inet_aton(options.address, &address.sin_addr);
    return address;
}

/* ---- one connection of RDMA ---- */

static void connect_give_queues(struct rdma_cm_id *id)
{
    if (!pd)
        pd = ibv_alloc_pd(id->verbs);
    if (!options.own_cq && !shared_cq)
        shared_cq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
    struct ibv_cq *cq = options.own_cq ? ibv_create_cq(id->verbs, 16, NULL, NULL, 0) : shared_cq;
    struct ibv_qp_init_attr attr = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
    };
    connect_must(!pd || !cq || rdma_create_qp(id, pd, &attr), "no queue pair");
}

static void connect_drop(struct rdma_cm_id *id)
{
    struct ibv_cq *cq = id->qp->send_cq;
    rdma_destroy_qp(id);
    if (options.own_cq)
        connect_must(ibv_destroy_cq(cq), "ibv_destroy_cq");
    connect_must(rdma_destroy_id(id), "rdma_destroy_id");
}

static struct rdma_conn_param connect_param(void)
{
    return (struct rdma_conn_param){
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
}

/* The next event; its ID is returned, what came is in *type. */
static struct rdma_cm_id *connect_next_event(enum rdma_cm_event_type *type)
{
    struct rdma_cm_event *event;
    connect_must(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    struct rdma_cm_id *id = event->id;
    *type = event->event;
    if (event->status)
        bench_die("%s: status %d", rdma_event_str(event->event), event->status);
    rdma_ack_cm_event(event);
    return id;
}

/* ---- the sides by RDMA ---- */

static void serve_rdma(int control)
{
    struct sockaddr_in any = connect_address_of(0);
    struct rdma_cm_id *listener;
    connect_must(!(channel = rdma_create_event_channel()), "no event channel");
    connect_must(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
    connect_must(rdma_bind_addr(listener, (struct sockaddr *)&any) ||
                     rdma_listen(listener, BACKLOG),
                 "cannot listen");
    const uint16_t port = ntohs(rdma_get_src_port(listener));
    bench_send(control, &port, sizeof(port));
    unsigned long ended = 0;
    while (ended < options.connections) {
        enum rdma_cm_event_type type;
        struct rdma_cm_id *id = connect_next_event(&type);
        struct rdma_conn_param answer = connect_param();
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            connect_give_queues(id);
            connect_must(rdma_accept(id, &answer), "rdma_accept");
        } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
            connect_must(rdma_disconnect(id), "rdma_disconnect");
            connect_drop(id);
            ended++;
        }
    }
}

static void connect_begin_rdma(struct sockaddr_in *to)
{
    struct rdma_cm_id *id;
    connect_must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
    connect_must(rdma_resolve_addr(id, NULL, (struct sockaddr *)to, RESOLVE_MS),
                 "rdma_resolve_addr");
}

/* One step of one connection. Returns whether it came to its end; those to be held, when it is
 * there. */
static bool step_rdma(bool hold)
{
    enum rdma_cm_event_type type;
    struct rdma_cm_id *id = connect_next_event(&type);
    struct rdma_conn_param asked = connect_param();
    if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
        connect_must(rdma_resolve_route(id, RESOLVE_MS), "rdma_resolve_route");
    } else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
        connect_give_queues(id);
        connect_must(rdma_connect(id, &asked), "rdma_connect");
    } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
        connect_must(!hold && rdma_disconnect(id), "rdma_disconnect");
        return hold;
    } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
        connect_drop(id);
        return true;
    } else {
        bench_die("the connection failed: %s", rdma_event_str(type));
    }
    return false;
}

static void ask_rdma(struct sockaddr_in *to, unsigned long count, bool hold)
{
    unsigned long begun = 0, ended = 0;
    while (ended < count) {
        for (; begun < count && begun - ended < options.window; begun++)
            connect_begin_rdma(to);
        ended += step_rdma(hold);
    }
}

/* ---- the sides by TCP ---- */

static void serve_tcp(int control)
{
    struct sockaddr_in any = connect_address_of(0);
    socklen_t len = sizeof(any);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    connect_must(listener < 0 || bind(listener, (struct sockaddr *)&any, len) ||
                     listen(listener, BACKLOG) ||
                     getsockname(listener, (struct sockaddr *)&any, &len),
                 "cannot listen");
    const uint16_t port = ntohs(any.sin_port);
    bench_send(control, &port, sizeof(port));
    for (unsigned long ended = 0; ended < options.connections + options.held; ended++) {
        const int fd = accept(listener, NULL, NULL);
        connect_must(fd < 0, "accept");
        if (ended >= options.held)
            close(fd);
    }
}

static int begin_tcp(const struct sockaddr_in *to)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    connect_must(fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof(*to)), "cannot connect");
    return fd;
}

static void ask_tcp(const struct sockaddr_in *to, unsigned long count, bool hold)
{
    static int window[WINDOW_MAX];
    unsigned long begun = 0;
    for (unsigned long ended = 0; ended < count; ended++) {
        char byte;
        for (; begun < count && begun - ended < options.window; begun++)
            window[begun % options.window] = begin_tcp(to);
        const int fd = window[ended % options.window];
        if (hold)
            continue;
        connect_must(recv(fd, &byte, 1, 0) != 0, "recv");
        close(fd);
    }
}

/* ---- */

static void connect_serve(void)
{
    const int control = bench_listen(options.port);
    if (options.is_tcp)
        serve_tcp(control);
    else
        serve_rdma(control);
    bench_send(control, "", 1);
}

static void ask_many(struct sockaddr_in *to, unsigned long count, bool hold)
{
    if (options.is_tcp)
        ask_tcp(to, count, hold);
    else
        ask_rdma(to, count, hold);
}

static void connect_ask(void)
{
    const int control = bench_connect(options.address, options.port);
    uint16_t port;
    char end;
    if (!bench_receive(control, &port, sizeof(port)))
        bench_die("the server has gone");
    struct sockaddr_in to = connect_address_of(port);
    connect_must(!options.is_tcp && !(channel = rdma_create_event_channel()), "no event channel");
    ask_many(&to, options.held, true);
    const uint64_t start_ns = bench_now_ns();
    ask_many(&to, options.connections, false);
    if (!bench_receive(control, &end, 1))
        bench_die("the server has gone");
    printf("{\"connections_per_s\": %.0f}\n",
           (double)options.connections * 1e9 / (double)(bench_now_ns() - start_ns));
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    if (argc == 6 || argc == 7)
        options = (struct options){!strcmp(kind, "tcp"),
                                   !strcmp(kind, "rdma-cq"),
                                   (uint16_t)atoi(argv[2]),
                                   strtoul(argv[3], NULL, 10),
                                   strtoul(argv[4], NULL, 10),
                                   strtoul(argv[5], NULL, 10),
                                   argv[6]};
    if ((strcmp(kind, "rdma") && !options.own_cq && !options.is_tcp) || !options.connections ||
        !options.window || options.window > WINDOW_MAX)
        bench_die("usage: connect_rate rdma|rdma-cq|tcp PORT CONNECTIONS IN_FLIGHT HELD [ADDRESS]");
    if (options.address)
        connect_ask();
    else
        connect_serve();
    return 0;
}
