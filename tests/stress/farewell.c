/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer's last words:
 *   farewell [--connections N] [--bytes N] [--refusals N] [--losses N] [--unheard N]
 * A client sends a message and waits, by polling or asleep, for its completion and for events of
 * its connection; the server disconnects as soon as it has received it. The client must be told
 * what the server has received before it is told of the end: a NIC acknowledges before its program
 * can disconnect. Then servers refuse a request, say why, and are gone at once: with a NIC both
 * have been said. Then the network loses the last words of servers that disconnect and are gone,
 * over packets only: the client hears of the end as an end, and not by a request that fails. So it
 * does where the DREQ is lost as well: a process that is gone is known to be, and one that ends
 * says its DREQ again.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/namespace.h"
#include "verbs_util/pair.h"

#define RESOLVE_MS 30000
#define PATIENCE_MS 30000
#define SCRIPT "/tmp/farewell.XXXXXX"

static int connections = 200;
static size_t message_bytes = 32768;
static int refusals = 20;
static int losses = 0, unheard = 0;
static unsigned stay_us; /* of a server that has received its message */
static const char reason[] = "no room for you here";

/* One end of a connection. */
struct end {
    struct rdma_cm_id *id;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    uint8_t *bytes;
};

static struct rdma_cm_event *next_event(struct rdma_event_channel *events,
                                        enum rdma_cm_event_type awaited)
{
    struct rdma_cm_event *event;
    struct pollfd readable = {.fd = events->fd, .events = POLLIN};
    VU_CHECK(poll(&readable, 1, PATIENCE_MS) == 1, "no %s comes", rdma_event_str(awaited));
    VU_EQ(rdma_get_cm_event(events, &event), 0);
    return event;
}

static void expect_event(struct rdma_event_channel *events, enum rdma_cm_event_type type,
                         struct rdma_cm_id **id)
{
    struct rdma_cm_event *event = next_event(events, type);
    VU_EQ(event->event, type);
    if (id)
        *id = event->id;
    VU_EQ(rdma_ack_cm_event(event), 0);
}

static void set_up(struct end *end)
{
    end->bytes =
        mmap(NULL, message_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(end->bytes != MAP_FAILED);
    end->channel = ibv_create_comp_channel(end->id->verbs);
    VU_TRUE(end->channel);
    end->cq = ibv_create_cq(end->id->verbs, 16, NULL, end->channel, 0);
    VU_TRUE(end->cq);
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    VU_EQ(rdma_create_qp(end->id, NULL, &init), 0);
    end->mr = ibv_reg_mr(end->id->pd, end->bytes, message_bytes, IBV_ACCESS_LOCAL_WRITE);
    VU_TRUE(end->mr);
}

static void tear_down(struct end *end)
{
    rdma_destroy_qp(end->id);
    VU_EQ(ibv_dereg_mr(end->mr), 0);
    VU_EQ(ibv_destroy_cq(end->cq), 0);
    VU_EQ(ibv_destroy_comp_channel(end->channel), 0);
    VU_EQ(rdma_destroy_id(end->id), 0);
    VU_EQ(munmap(end->bytes, message_bytes), 0);
}

static struct sockaddr_in address_of(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* Accepts a connection and receives its message. `events`: what is to be told of it. */
static void receive_one(struct rdma_event_channel *requests, struct rdma_event_channel *events,
                        struct end *end)
{
    struct ibv_recv_wr wr = {.num_sge = 1}, *bad;
    struct ibv_wc wc;
    int count;
    expect_event(requests, RDMA_CM_EVENT_CONNECT_REQUEST, &end->id);
    VU_TRUE(events);
    VU_EQ(rdma_migrate_id(end->id, events), 0); /* the next request may come before this one ends */
    set_up(end);
    struct ibv_sge sge = {(uintptr_t)end->bytes, (uint32_t)message_bytes, end->mr->lkey};
    wr.sg_list = &sge;
    VU_EQ(ibv_post_recv(end->id->qp, &wr, &bad), 0);
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    VU_EQ(rdma_accept(end->id, &param), 0);
    expect_event(events, RDMA_CM_EVENT_ESTABLISHED, NULL);
    do
        count = ibv_poll_cq(end->cq, 1, &wc);
    while (count == 0);
    VU_EQ(count, 1);
    VU_EQ(wc.status, IBV_WC_SUCCESS);
}

static void serve_one(struct rdma_event_channel *requests)
{
    struct end end = {0};
    struct rdma_event_channel *events = rdma_create_event_channel();
    receive_one(requests, events, &end);
    usleep(stay_us);
    VU_EQ(rdma_disconnect(end.id), 0);
    expect_event(events, RDMA_CM_EVENT_DISCONNECTED, NULL);
    tear_down(&end);
    rdma_destroy_event_channel(events);
}

/* Tells its port. */
static struct rdma_cm_id *listen_anywhere(struct rdma_event_channel *events, int ready)
{
    struct rdma_cm_id *listener;
    struct sockaddr_in address = address_of(0);
    VU_TRUE(events);
    VU_EQ(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP), 0);
    VU_EQ(rdma_bind_addr(listener, (struct sockaddr *)&address), 0);
    VU_EQ(rdma_listen(listener, 8), 0);
    uint16_t port = ntohs(rdma_get_src_port(listener));
    VU_EQ(write(ready, &port, sizeof(port)), sizeof(port));
    return listener;
}

static void refuse(int ready)
{
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *id;
    listen_anywhere(events, ready);
    expect_event(events, RDMA_CM_EVENT_CONNECT_REQUEST, &id);
    VU_EQ(rdma_reject(id, reason, sizeof(reason)), 0);
    _exit(0);
}

/* The rules of a script count for this process from its first device on. Its file may go then. */
static void set_faults(const char *rules, char script[sizeof(SCRIPT)])
{
    char faults[sizeof(SCRIPT) + 1];
    strcpy(script, SCRIPT);
    const int fd = mkstemp(script);
    VU_TRUE(fd >= 0);
    VU_EQ(write(fd, rules, strlen(rules)), (ssize_t)strlen(rules));
    VU_EQ(close(fd), 0);
    snprintf(faults, sizeof(faults), "@%s", script);
    VU_EQ(setenv("SIDEWIRE_FAULTS", faults, 1), 0);
}

/* Receives one message, whose ACK is lost, disconnects and is gone. */
static void vanish(int ready)
{
    char script[sizeof(SCRIPT)];
    set_faults("drop sent opcode ack\n", script);
    stay_us = 100 * 1000;
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *listener = listen_anywhere(events, ready);
    VU_EQ(unlink(script), 0);
    serve_one(events);
    VU_EQ(rdma_destroy_id(listener), 0);
    _exit(0); /* LeakSanitizer takes what the parent had open for lost */
}

/* Whether this process has a TCP connection, by which its peer sees its end. */
static bool has_lifeline(void)
{
    bool found = false;
    DIR *open_ones = opendir("/proc/self/fd");
    VU_TRUE(open_ones);
    for (struct dirent *entry; !found && (entry = readdir(open_ones));) {
        struct tcp_info info;
        socklen_t len = sizeof(info);
        found = !getsockopt(atoi(entry->d_name), IPPROTO_TCP, TCP_INFO, &info, &len) &&
                info.tcpi_state == TCP_ESTABLISHED;
    }
    closedir(open_ones);
    return found;
}

/* The same without a wait for the DREP, which does not come: this program is done. */
static void receive_and_part(int ready, const char *rules, bool waits_for_line)
{
    char script[sizeof(SCRIPT)];
    struct end end = {0};
    set_faults(rules, script);
    struct rdma_event_channel *requests = rdma_create_event_channel();
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *listener = listen_anywhere(requests, ready);
    VU_EQ(unlink(script), 0);
    receive_one(requests, events, &end);
    while (waits_for_line && !has_lifeline())
        usleep(1000);
    VU_EQ(rdma_disconnect(end.id), 0);
    tear_down(&end);
    VU_EQ(rdma_destroy_id(listener), 0);
    rdma_destroy_event_channel(events);
    rdma_destroy_event_channel(requests);
}

/* No DREQ arrives, but it is seen that this process is gone. */
static void part_unheard(int ready)
{
    receive_and_part(ready, "drop sent opcode ack\ndrop sent opcode dreq\n", true);
    _exit(0);
}

/* The first DREQ is lost, and nobody sees that this process is gone. */
static void part_without_line(int ready)
{
    VU_EQ(setenv("SIDEWIRE_LIVENESS", "never", 1), 0);
    receive_and_part(ready, "drop sent opcode ack\ndrop sent opcode dreq once\n", false);
}

static void serve(int ready)
{
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *listener = listen_anywhere(events, ready);
    for (int i = 0; i < connections; i++)
        serve_one(events);
    VU_EQ(rdma_destroy_id(listener), 0);
    rdma_destroy_event_channel(events);
}

/* Whether the completion is there. */
static bool is_told(struct end *end)
{
    struct ibv_wc wc;
    int count = ibv_poll_cq(end->cq, 1, &wc);
    VU_TRUE(count >= 0);
    if (count)
        VU_EQ(wc.status, IBV_WC_SUCCESS);
    return count;
}

/* Each returns whether the completion came no later than the end of the connection. */
static bool watch_by_polling(struct end *end, struct rdma_event_channel *events)
{
    struct pollfd readable = {.fd = events->fd, .events = POLLIN};
    for (;;) {
        if (is_told(end))
            return true;
        if (poll(&readable, 1, 0) == 1)
            return is_told(end);
    }
}

static bool watch_asleep(struct end *end, struct rdma_event_channel *events)
{
    struct pollfd readable[] = {{.fd = end->channel->fd, .events = POLLIN},
                                {.fd = events->fd, .events = POLLIN}};
    VU_TRUE(poll(readable, 2, PATIENCE_MS) > 0);
    if (!readable[0].revents)
        return false;
    struct ibv_cq *cq;
    void *context;
    VU_EQ(ibv_get_cq_event(end->channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    return is_told(end);
}

static void ask(struct end *end, struct rdma_event_channel *events, uint16_t port)
{
    struct sockaddr_in address = address_of(port);
    VU_EQ(rdma_create_id(events, &end->id, NULL, RDMA_PS_TCP), 0);
    VU_EQ(rdma_resolve_addr(end->id, NULL, (struct sockaddr *)&address, RESOLVE_MS), 0);
    expect_event(events, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
    VU_EQ(rdma_resolve_route(end->id, RESOLVE_MS), 0);
    expect_event(events, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
    set_up(end);
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    VU_EQ(rdma_connect(end->id, &param), 0);
}

static void connect_and_send(struct end *end, struct rdma_event_channel *events, uint16_t port)
{
    memset(end, 0, sizeof(*end));
    ask(end, events, port);
    expect_event(events, RDMA_CM_EVENT_ESTABLISHED, NULL);
    VU_EQ(ibv_req_notify_cq(end->cq, 0), 0);
    struct ibv_sge sge = {(uintptr_t)end->bytes, (uint32_t)message_bytes, end->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    VU_EQ(ibv_post_send(end->id->qp, &wr, &bad), 0);
}

static bool call_one(struct rdma_event_channel *events, uint16_t port, bool sleeps)
{
    struct end end;
    connect_and_send(&end, events, port);
    bool in_order = sleeps ? watch_asleep(&end, events) : watch_by_polling(&end, events);
    expect_event(events, RDMA_CM_EVENT_DISCONNECTED, NULL);
    VU_EQ(rdma_disconnect(end.id), 0);
    tear_down(&end);
    return in_order;
}

static void call(uint16_t port)
{
    struct rdma_event_channel *events = rdma_create_event_channel();
    int overtaken[2] = {0};
    VU_TRUE(events);
    for (int i = 0; i < connections; i++)
        overtaken[i & 1] += !call_one(events, port, i & 1);
    printf("%d connections: the end overtook a completion in %d by polling, in %d asleep\n",
           connections, overtaken[0], overtaken[1]);
    VU_EQ(overtaken[0] + overtaken[1], 0);
    rdma_destroy_event_channel(events);
}

/* Starts a process that does `what`; returns the port it listens on. */
static uint16_t start(void (*what)(int ready), pid_t *pid)
{
    int ready[2];
    uint16_t port;
    VU_EQ(pipe(ready), 0);
    *pid = fork();
    if (*pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        what(ready[1]);
        exit(0);
    }
    VU_TRUE(*pid > 0);
    close(ready[1]);
    VU_EQ(read(ready[0], &port, sizeof(port)), sizeof(port));
    close(ready[0]);
    return port;
}

static void expect_success(pid_t pid)
{
    int status = 0;
    VU_EQ(waitpid(pid, &status, 0), pid);
    VU_EQ(status, 0);
}

/* Each by a process of its own, which has spoken to us never before. */
static void be_refused(void)
{
    struct rdma_event_channel *events = rdma_create_event_channel();
    VU_TRUE(events);
    for (int i = 0; i < refusals; i++) {
        struct end end = {0};
        pid_t server;
        ask(&end, events, start(refuse, &server));
        struct rdma_cm_event *event = next_event(events, RDMA_CM_EVENT_REJECTED);
        VU_EQ(event->event, RDMA_CM_EVENT_REJECTED);
        VU_TRUE(event->param.conn.private_data_len >= sizeof(reason));
        VU_EQ(memcmp(event->param.conn.private_data, reason, sizeof(reason)), 0);
        VU_EQ(rdma_ack_cm_event(event), 0);
        tear_down(&end);
        expect_success(server);
    }
    rdma_destroy_event_channel(events);
}

/* TCP loses no last words: what the server has received, the client may have been told. */
static bool is_over_tcp(void)
{
    const char *link = getenv("SIDEWIRE_LINK");
    return link && !strcmp(link, "tcp");
}

/* The end of a request that was told of after the end of its connection, if at all. */
static void expect_late_end(struct end *end)
{
    struct ibv_wc wc;
    if (is_over_tcp() && is_told(end)) {
        VU_EQ(rdma_disconnect(end->id), 0);
        return;
    }
    VU_EQ(ibv_poll_cq(end->cq, 1, &wc), 0);
    VU_EQ(rdma_disconnect(end->id), 0);
    VU_EQ(ibv_poll_cq(end->cq, 1, &wc), 1);
    VU_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
}

/* Each by a process of its own. */
static void miss_last_words(void)
{
    struct rdma_event_channel *events = rdma_create_event_channel();
    VU_TRUE(events);
    for (int i = 0; i < losses; i++) {
        struct end end;
        pid_t server;
        connect_and_send(&end, events, start(vanish, &server));
        struct rdma_cm_event *event = next_event(events, RDMA_CM_EVENT_DISCONNECTED);
        VU_EQ(event->event, RDMA_CM_EVENT_DISCONNECTED);
        VU_EQ(rdma_ack_cm_event(event), 0);
        expect_late_end(&end);
        tear_down(&end);
        expect_success(server);
    }
    rdma_destroy_event_channel(events);
}

/* A process of its own, which has none to say DREQ in another's place. */
static void call_who_parts(void (*how)(int ready))
{
    char script[sizeof(SCRIPT)];
    struct end end;
    struct ibv_wc wc;
    pid_t server;
    const uint16_t port = start(how, &server);
    if (how == part_without_line)
        VU_EQ(setenv("SIDEWIRE_LIVENESS", "never", 1), 0);
    set_faults("drop sent opcode dreq\n", script);
    struct rdma_event_channel *events = rdma_create_event_channel();
    VU_TRUE(events);
    connect_and_send(&end, events, port);
    const uint64_t sent_ms = vu_now_ms();
    VU_EQ(unlink(script), 0);
    struct pollfd readable = {.fd = events->fd, .events = POLLIN};
    int count;
    while (!(count = ibv_poll_cq(end.cq, 1, &wc)) && poll(&readable, 1, 1) == 0)
        continue;
    if (count && is_over_tcp()) /* the server has received it, and nobody fails */
        VU_EQ(wc.status, IBV_WC_SUCCESS);
    else
        VU_CHECK(poll(&readable, 1, 0) == 1, "%s: the request ended first, after %llu ms, with %s",
                 how == part_unheard ? "DREQ unheard" : "no line",
                 (unsigned long long)(vu_now_ms() - sent_ms),
                 count ? ibv_wc_status_str(wc.status) : "nothing");
    expect_event(events, RDMA_CM_EVENT_DISCONNECTED, NULL);
    VU_EQ(rdma_disconnect(end.id), 0);
    tear_down(&end);
    rdma_destroy_event_channel(events);
    expect_success(server);
}

static void miss_dreqs(void)
{
    void (*const ways[])(int ready) = {part_unheard, part_without_line};
    for (int i = 0; i < 2 * unheard; i++) {
        const pid_t pid = fork();
        if (pid == 0) {
            call_who_parts(ways[i % 2]);
            exit(0);
        }
        expect_success(pid);
    }
}

/* Over packets all processes of a network share a port. Those of other tests, which end and are
 * stopped, would take last words along. */
static void be_alone(void)
{
    const char *link = getenv("SIDEWIRE_LINK");
    if (link && (!strcmp(link, "roce") || is_over_tcp()) && !namespace_own_network())
        puts("in the network of all, where other tests had better not run meanwhile");
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--connections"))
            connections = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--bytes"))
            message_bytes = strtoul(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--refusals"))
            refusals = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--losses"))
            losses = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--unheard"))
            unheard = atoi(argv[i + 1]);
    }
}

int main(int argc, char **argv)
{
    pid_t server;
    read_arguments(argc, argv);
    be_alone();
    miss_dreqs(); /* first: their processes have nothing open of this one */
    call(start(serve, &server));
    expect_success(server);
    be_refused();
    miss_last_words();
    return 0;
}
