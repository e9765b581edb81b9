/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What connections of librdmacm cost that say nothing: the memory of each, and the time of a
 * message on one of them. Both sides sleep until an event. One completion queue of a side serves
 * all. Two processes that are started apart; the client prints one JSON object.
 *
 * usage: idle_connections PORT CONNECTIONS ROUND_TRIPS [ADDRESS]     (with ADDRESS: the client)
 */
#include "endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define BYTES 8u
#define CONNECTIONS_MAX 2000u
#define BACKLOG 1024
#define RESOLVE_MS 5000
#define SETTLE_US 500000 /* until what was needed for the start alone is given back */
#define PAUSE_US 500     /* before each round trip: both sides sleep */

struct side {
    struct rdma_event_channel *channel;
    struct ibv_comp_channel *completions;
    struct ibv_cq *cq;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct rdma_cm_id *ids[CONNECTIONS_MAX];
    unsigned int ready;
    char memory[4096];
};

static struct side side;
static unsigned int connections;

static void idle_must(int failed, const char *what)
{
    if (failed)
        bench_die("%s: %s", what, strerror(errno));
}

static struct ibv_sge whole_message(void)
{
    return (struct ibv_sge){(uintptr_t)side.memory, BYTES, side.mr->lkey};
}

static void idle_post_receive(struct ibv_qp *qp)
{
    struct ibv_sge sge = whole_message();
    struct ibv_recv_wr *bad, wr = {.wr_id = qp->qp_num, .sg_list = &sge, .num_sge = 1};
    idle_must(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

static void post_message(struct ibv_qp *qp)
{
    struct ibv_sge sge = whole_message();
    struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    wr.send_flags = IBV_SEND_SIGNALED;
    idle_must(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

static void idle_give_queues(struct rdma_cm_id *id)
{
    if (!side.pd) {
        side.pd = ibv_alloc_pd(id->verbs);
        side.completions = ibv_create_comp_channel(id->verbs);
        side.cq = ibv_create_cq(id->verbs, (int)connections * 2, NULL, side.completions, 0);
        side.mr = ibv_reg_mr(side.pd, side.memory, sizeof(side.memory), IBV_ACCESS_LOCAL_WRITE);
        idle_must(!side.cq || !side.mr, "no queues");
    }
    struct ibv_qp_init_attr attr = {
        .send_cq = side.cq,
        .recv_cq = side.cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
    };
    idle_must(rdma_create_qp(id, side.pd, &attr), "no queue pair");
    idle_post_receive(id->qp);
}

static struct rdma_cm_id *idle_next_event(enum rdma_cm_event_type *type)
{
    struct rdma_cm_event *event;
    idle_must(rdma_get_cm_event(side.channel, &event), "rdma_get_cm_event");
    struct rdma_cm_id *id = event->id;
    *type = event->event;
    if (event->status)
        bench_die("%s: status %d", rdma_event_str(event->event), event->status);
    rdma_ack_cm_event(event);
    return id;
}

/* Takes events until one connection more is there. */
static void await_connection(void)
{
    struct rdma_conn_param param = {
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
    for (;;) {
        enum rdma_cm_event_type type;
        struct rdma_cm_id *id = idle_next_event(&type);
        if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
            idle_must(rdma_resolve_route(id, RESOLVE_MS), "rdma_resolve_route");
        } else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
            idle_give_queues(id);
            idle_must(rdma_connect(id, &param), "rdma_connect");
        } else if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            idle_give_queues(id);
            idle_must(rdma_accept(id, &param), "rdma_accept");
        } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
            side.ids[side.ready++] = id;
            return;
        } else {
            bench_die("the connection failed: %s", rdma_event_str(type));
        }
    }
}

/* Sleeps until a message has come; the queue pair that it came to. */
static uint32_t await_message(void)
{
    static unsigned int unacknowledged;
    for (;;) {
        struct ibv_wc wc;
        struct ibv_cq *cq;
        void *context;
        while (ibv_poll_cq(side.cq, 1, &wc) == 1) {
            if (wc.status != IBV_WC_SUCCESS)
                bench_die("a request failed: %s", ibv_wc_status_str(wc.status));
            if (wc.opcode == IBV_WC_RECV)
                return wc.qp_num;
        }
        idle_must(ibv_req_notify_cq(side.cq, 0), "ibv_req_notify_cq");
        if (ibv_poll_cq(side.cq, 1, &wc) == 1) {
            if (wc.opcode == IBV_WC_RECV)
                return wc.qp_num;
            continue;
        }
        idle_must(ibv_get_cq_event(side.completions, &cq, &context), "ibv_get_cq_event");
        if (++unacknowledged == 1000) {
            ibv_ack_cq_events(cq, unacknowledged);
            unacknowledged = 0;
        }
    }
}

static struct ibv_qp *find_qp(uint32_t number)
{
    for (unsigned int i = 0; i < side.ready; i++)
        if (side.ids[i]->qp->qp_num == number)
            return side.ids[i]->qp;
    bench_die("a message to a queue pair that is not there");
}

/* Kilobytes of this process, what it shares with others divided among them. */
static double memory_kib(void)
{
    char line[256];
    double kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && kib < 0 && fgets(line, sizeof(line), file))
        sscanf(line, "Pss: %lf kB", &kib);
    if (!file || kib < 0)
        bench_die("/proc/self/smaps_rollup does not tell");
    fclose(file);
    return kib;
}

static void idle_serve(int control, unsigned long round_trips)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    struct rdma_cm_id *listener;
    char end;
    idle_must(rdma_create_id(side.channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
    idle_must(rdma_bind_addr(listener, (struct sockaddr *)&any) || rdma_listen(listener, BACKLOG),
              "cannot listen");
    const uint16_t port = ntohs(rdma_get_src_port(listener));
    bench_send(control, &port, sizeof(port));
    while (side.ready < connections)
        await_connection();
    bench_send(control, "", 1);
    for (unsigned long i = 0; i < round_trips; i++) {
        struct ibv_qp *qp = find_qp(await_message());
        idle_post_receive(qp);
        post_message(qp);
    }
    bench_receive(control, &end, 1);
}

static int idle_compare_times(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The median of round trips, each on the next connection but some. */
static uint64_t measure_trips(unsigned long count)
{
    uint64_t *times = calloc(count, sizeof(*times));
    idle_must(!times, "calloc");
    for (unsigned long i = 0; i < count; i++) {
        struct ibv_qp *qp = side.ids[i * 7 % connections]->qp;
        usleep(PAUSE_US);
        const uint64_t start_ns = bench_now_ns();
        post_message(qp);
        await_message();
        times[i] = bench_now_ns() - start_ns;
        idle_post_receive(qp);
    }
    qsort(times, count, sizeof(*times), idle_compare_times);
    const uint64_t median_ns = times[count / 2];
    free(times);
    return median_ns;
}

static void connect_all(const char *address, uint16_t port, double *first_kib)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    idle_must(!inet_aton(address, &to.sin_addr), "address");
    while (side.ready < connections) {
        struct rdma_cm_id *id;
        idle_must(rdma_create_id(side.channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
        idle_must(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS),
                  "rdma_resolve_addr");
        await_connection();
        if (side.ready == 1)
            *first_kib = memory_kib();
    }
}

static void idle_ask(int control, const char *address, unsigned long round_trips)
{
    double first_kib = 0;
    uint16_t port;
    char ready;
    if (!bench_receive(control, &port, sizeof(port)))
        bench_die("the server has gone");
    connect_all(address, port, &first_kib);
    if (!bench_receive(control, &ready, 1))
        bench_die("the server has gone");
    usleep(SETTLE_US);
    measure_trips(100); /* so that those that were used are counted as well */
    const double all_kib = memory_kib();
    const uint64_t median_ns = measure_trips(round_trips - 100);
    printf("{\"bytes_per_connection\": %.0f, \"round_trip_ns\": %lu}\n",
           connections > 1 ? (all_kib - first_kib) * 1024 / (connections - 1) : 0.0, median_ns);
    bench_send(control, "", 1);
}

static void allow_descriptors(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
    const char *usage = "usage: idle_connections PORT CONNECTIONS ROUND_TRIPS [ADDRESS]";
    if (argc != 4 && argc != 5)
        bench_die("%s", usage);
    const uint16_t port = (uint16_t)atoi(argv[1]);
    const unsigned long round_trips = strtoul(argv[3], NULL, 10);
    connections = (unsigned int)strtoul(argv[2], NULL, 10);
    if (!connections || connections > CONNECTIONS_MAX || round_trips <= 100)
        bench_die("%s; more than 100 round trips", usage);
    allow_descriptors();
    idle_must(!(side.channel = rdma_create_event_channel()), "no event channel");
    if (argc == 5)
        idle_ask(bench_connect(argv[4], port), argv[4], round_trips);
    else
        idle_serve(bench_listen(port), round_trips);
    return 0;
}
