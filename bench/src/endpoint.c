/* SPDX-License-Identifier: BSD-2-Clause */
#include "endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT 1
#define INLINE_BYTES 64
#define READS_IN_FLIGHT 16

/* What each side tells the other. */
struct card {
    union ibv_gid gid;
    uint64_t addr;
    uint32_t key;
    enum ibv_mtu mtu;
    uint32_t qp_nums[BENCH_LANES_MAX];
};

void bench_die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

uint64_t bench_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void bench_pin(int cpu)
{
    cpu_set_t set;

    if (cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set))
        bench_die("cannot pin to CPU %d: %s", cpu, strerror(errno));
}

int bench_pair(pid_t *peer)
{
    int sockets[2];
    pid_t parent = getpid(), child;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
        bench_die("socketpair: %s", strerror(errno));
    fflush(NULL);
    child = fork();
    if (child < 0)
        bench_die("fork: %s", strerror(errno));
    *peer = child;
    if (child) {
        close(sockets[1]);
        return sockets[0];
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    close(sockets[0]);
    return sockets[1];
}

int bench_listen(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;

    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
        bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 1))
        bench_die("cannot listen on port %u: %s", port, strerror(errno));
    peer = accept(listener, NULL, NULL);
    if (peer < 0)
        bench_die("accept: %s", strerror(errno));
    close(listener);
    return peer;
}

int bench_connect(const char *address, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
        bench_die("%s is no IPv4 address", address);
    if (peer < 0 || connect(peer, (struct sockaddr *)&to, sizeof(to)))
        bench_die("cannot connect to %s port %u: %s", address, port, strerror(errno));
    return peer;
}

void bench_send(int socket, const void *data, size_t len_bytes)
{
    if (send(socket, data, len_bytes, MSG_NOSIGNAL) != (ssize_t)len_bytes)
        bench_die("the other side is gone");
}

bool bench_receive(int socket, void *data, size_t len_bytes)
{
    ssize_t got = recv(socket, data, len_bytes, MSG_WAITALL);

    if (got == 0)
        return false;
    if (got != (ssize_t)len_bytes)
        bench_die("the other side is gone");
    return true;
}

bool bench_has_closed(int socket)
{
    char end;

    return recv(socket, &end, 1, MSG_DONTWAIT) == 0;
}

static struct ibv_context *open_device(const char *wanted)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_device *chosen = NULL;
    struct ibv_context *context;

    for (int i = 0; list && i < count; i++) {
        const char *name = ibv_get_device_name(list[i]);

        if (wanted ? !strcmp(name, wanted) : (!chosen && !strncmp(name, "sw_", 3)))
            chosen = list[i];
    }
    if (!chosen && !wanted && list && count)
        chosen = list[0];
    if (!chosen)
        bench_die("no device %s; run this under `sidewire run --`", wanted ? wanted : "at all");
    context = ibv_open_device(chosen);
    if (!context)
        bench_die("cannot open %s: %s", ibv_get_device_name(chosen), strerror(errno));
    ibv_free_device_list(list);
    return context;
}

static bool endpoint_is_link_local(const union ibv_gid *gid)
{
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

/* The best valid entry of the GID table: RoCE v2 if there is one, and of a wider scope than the
 * link. */
static void choose_gid(struct bench_endpoint *endpoint, union ibv_gid *gid)
{
    struct ibv_gid_entry entry;
    int best = 0;

    for (uint32_t i = 0; i < 32; i++) {
        int worth = 1;

        if (ibv_query_gid_ex(endpoint->context, PORT, i, &entry, 0))
            continue;
        if (entry.gid_type == IBV_GID_TYPE_ROCE_V2)
            worth += endpoint_is_link_local(&entry.gid) ? 1 : 2;
        if (worth <= best)
            continue;
        best = worth;
        endpoint->gid_index = (uint8_t)i;
        *gid = entry.gid;
    }
    if (!best)
        bench_die("the device has no address");
}

static uint32_t endpoint_depth_of(const struct bench_shape *shape)
{
    return shape->depth ? shape->depth : BENCH_DEPTH;
}

static uint32_t receives_of(const struct bench_shape *shape)
{
    return shape->receives ? shape->receives : 1;
}

/* Entries of the completion queue. */
static uint32_t endpoint_entries_of(const struct bench_shape *shape)
{
    return endpoint_depth_of(shape) + shape->receives;
}

static enum ibv_mtu choose_mtu(const struct bench_endpoint *endpoint)
{
    struct ibv_port_attr port;

    if (!endpoint->shape.largest_mtu)
        return IBV_MTU_1024;
    if (ibv_query_port(endpoint->context, PORT, &port))
        bench_die("ibv_query_port failed");
    return port.active_mtu;
}

static struct ibv_cq *create_cq(struct bench_endpoint *endpoint, uint32_t entries)
{
    struct ibv_cq *cq = ibv_create_cq(endpoint->context, (int)entries, NULL, endpoint->channel, 0);

    if (!cq)
        bench_die("ibv_create_cq of %u: %s", entries, strerror(errno));
    return cq;
}

/* `cq`: the common one, or NULL. */
static void create_lane(struct bench_endpoint *endpoint, struct bench_lane *lane, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = endpoint_depth_of(&endpoint->shape),
                .max_recv_wr = receives_of(&endpoint->shape),
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = INLINE_BYTES},
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = PORT,
        .qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
    };

    lane->cq = cq ? cq : create_cq(endpoint, endpoint_entries_of(&endpoint->shape));
    init.send_cq = init.recv_cq = lane->cq;
    lane->qp = ibv_create_qp(endpoint->pd, &init);
    if (!lane->qp)
        bench_die("ibv_create_qp: %s", strerror(errno));
    endpoint->inline_ok = init.cap.max_inline_data >= INLINE_BYTES;
    if (ibv_modify_qp(lane->qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        bench_die("ibv_modify_qp to INIT failed");
}

static void endpoint_connect_lane(struct bench_endpoint *endpoint, struct bench_lane *lane,
                                  const struct card *peer, uint32_t peer_qp_num)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = peer->mtu < endpoint->mtu ? peer->mtu : endpoint->mtu,
        .dest_qp_num = peer_qp_num,
        .max_dest_rd_atomic = READS_IN_FLIGHT,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1,
                    .port_num = PORT,
                    .grh = {.dgid = peer->gid, .sgid_index = endpoint->gid_index, .hop_limit = 64}},
    };

    if (ibv_modify_qp(lane->qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        bench_die("ibv_modify_qp to RTR failed");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .max_rd_atomic = READS_IN_FLIGHT,
    };
    if (ibv_modify_qp(lane->qp, &attr,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        bench_die("ibv_modify_qp to RTS failed");
}

void bench_endpoint_join(struct bench_endpoint *endpoint, const char *device,
                         const struct bench_shape *shape, void *memory, size_t len_bytes,
                         int socket)
{
    static struct card mine, theirs;
    struct ibv_cq *common = NULL;
    char ready = 1;

    memset(endpoint, 0, sizeof(*endpoint)); /* too large for a stack */
    endpoint->context = open_device(device);
    endpoint->shape = *shape;
    endpoint->channel = shape->has_events ? ibv_create_comp_channel(endpoint->context) : NULL;
    if (shape->has_events && !endpoint->channel)
        bench_die("ibv_create_comp_channel: %s", strerror(errno));
    endpoint->pd = ibv_alloc_pd(endpoint->context);
    if (!endpoint->pd)
        bench_die("ibv_alloc_pd: %s", strerror(errno));
    endpoint->mr = ibv_reg_mr(endpoint->pd, memory, len_bytes,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    if (!endpoint->mr)
        bench_die("ibv_reg_mr of %zu bytes: %s", len_bytes, strerror(errno));
    choose_gid(endpoint, &mine.gid);
    mine.addr = (uintptr_t)memory;
    mine.key = endpoint->mr->rkey;
    mine.mtu = endpoint->mtu = choose_mtu(endpoint);
    if (shape->one_cq)
        common = create_cq(endpoint, (uint32_t)shape->lanes * endpoint_entries_of(shape));
    for (int i = 0; i < shape->lanes; i++) {
        create_lane(endpoint, &endpoint->lanes[i], common);
        mine.qp_nums[i] = endpoint->lanes[i].qp->qp_num;
    }
    bench_send(socket, &mine, sizeof(mine));
    if (!bench_receive(socket, &theirs, sizeof(theirs)))
        bench_die("the other side is gone");
    endpoint->remote_addr = theirs.addr;
    endpoint->remote_key = theirs.key;
    for (int i = 0; i < shape->lanes; i++)
        endpoint_connect_lane(endpoint, &endpoint->lanes[i], &theirs, theirs.qp_nums[i]);
    bench_send(socket, &ready, sizeof(ready));
    if (!bench_receive(socket, &ready, sizeof(ready)))
        bench_die("the other side is gone");
}

void bench_endpoint_close(struct bench_endpoint *endpoint)
{
    for (int i = 0; i < endpoint->shape.lanes; i++) {
        ibv_destroy_qp(endpoint->lanes[i].qp);
        if (!endpoint->shape.one_cq)
            ibv_destroy_cq(endpoint->lanes[i].cq);
    }
    if (endpoint->shape.one_cq)
        ibv_destroy_cq(endpoint->lanes[0].cq);
    if (endpoint->channel)
        ibv_destroy_comp_channel(endpoint->channel);
    ibv_dereg_mr(endpoint->mr);
    ibv_dealloc_pd(endpoint->pd);
    ibv_close_device(endpoint->context);
}

void bench_lane_wait(struct bench_lane *lane, unsigned int count)
{
    struct ibv_wc wc[16];

    while (count) {
        int got = ibv_poll_cq(lane->cq, count < 16 ? (int)count : 16, wc);

        if (got < 0)
            bench_die("ibv_poll_cq failed");
        for (int i = 0; i < got; i++) {
            if (wc[i].status != IBV_WC_SUCCESS)
                bench_die("a request failed: %s", ibv_wc_status_str(wc[i].status));
        }
        count -= (unsigned int)got;
    }
}

void bench_lane_receive(struct bench_endpoint *endpoint, int lane, uint64_t id, size_t offset,
                        uint32_t len_bytes)
{
    struct ibv_sge sge = {(uintptr_t)endpoint->mr->addr + offset, len_bytes, endpoint->mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
    int failed = ibv_post_recv(endpoint->lanes[lane].qp, &wr, &bad);

    if (failed)
        bench_die("ibv_post_recv: %s", strerror(failed));
}

bool bench_lane_sleep(struct bench_endpoint *endpoint, int lane, int socket)
{
    struct ibv_cq *cq = endpoint->lanes[lane].cq;
    struct pollfd ready[] = {{.fd = endpoint->channel->fd, .events = POLLIN},
                             {.fd = socket, .events = POLLIN}};
    void *owner;

    if (!endpoint->is_armed) {
        if (ibv_req_notify_cq(cq, 0))
            bench_die("ibv_req_notify_cq failed");
        endpoint->is_armed = true;
        return true; /* what came before is polled first */
    }
    poll(ready, 2, -1);
    if (ready[0].revents & POLLIN) {
        endpoint->is_armed = false;
        if (ibv_get_cq_event(endpoint->channel, &cq, &owner))
            bench_die("ibv_get_cq_event: %s", strerror(errno));
        ibv_ack_cq_events(cq, 1);
        return true;
    }
    return !ready[1].revents;
}
