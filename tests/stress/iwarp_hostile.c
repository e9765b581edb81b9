/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hostile caller at an iWARP listener whose program accepts anybody, beside a peer that behaves:
 * iwarp_hostile [--seed N] [--seconds N], in a network of its own. The peer's requests go on, each
 * with the right bytes; memory whose key nobody was given stays as it was; the program may open
 * what it wants; and at the end it has as many descriptors as at the beginning.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../preload/namespace.h"
#include "hostile_caller.h"
#include "verbs_util/pair.h"

enum {
    DESCRIPTORS = 256,
    OWN = 64,      /* that the program may want for itself at any time */
    STRANGERS = 8, /* connections of strangers that the program keeps; the oldest goes */
    RECEIVES = 4,
    RECEIVE_BYTES = 64,
    OPEN_BYTES = 8192,
    GUARDED_BYTES = 65536,
    BLOCK_BYTES = 6000,
    RESOLVE_MS = 20000,
    PATIENCE_MS = 20000,
    SPARE_FDS = 24 /* of the library's own, which come with the first connections */
};
static const char good[] = "one that behaves";

struct server {
    int sock;
    struct rdma_event_channel *events;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *open_mr, *guarded_mr, *good_mr;
    struct rdma_cm_id *listener, *peer, *strangers[STRANGERS];
    uint32_t next, accepted;
    uint8_t open[OPEN_BYTES], guarded[GUARDED_BYTES], of_peer[BLOCK_BYTES];
    uint8_t received[RECEIVES][RECEIVE_BYTES];
};

static int count_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    VU_TRUE(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void keeps_descriptors(void)
{
    int fds[OWN], count = 0;
    while (count < OWN && (fds[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    VU_CHECK(count == OWN, "%d descriptors are left to the program", count);
    while (count-- > 0)
        close(fds[count]);
}

static struct sockaddr_in at_loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* ---- the server ---- */

static void make_qp(struct server *s, struct rdma_cm_id *id)
{
    if (!s->pd) {
        s->pd = ibv_alloc_pd(id->verbs);
        s->cq = ibv_create_cq(id->verbs, 1024, NULL, NULL, 0);
        VU_TRUE(s->pd && s->cq);
        s->open_mr = ibv_reg_mr(s->pd, s->open, sizeof(s->open), VU_ACCESS_ALL);
        s->guarded_mr = ibv_reg_mr(s->pd, s->guarded, sizeof(s->guarded), VU_ACCESS_ALL);
        s->good_mr = ibv_reg_mr(s->pd, s->of_peer, sizeof(s->of_peer), VU_ACCESS_ALL);
        VU_TRUE(s->open_mr && s->guarded_mr && s->good_mr);
    }
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = s->cq,
        .recv_cq = s->cq,
        .cap = {.max_send_wr = 8, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};
    VU_EQ(rdma_create_qp(id, s->pd, &init), 0);
}

static void end_id(struct rdma_cm_id **id)
{
    if (!*id)
        return;
    rdma_destroy_qp(*id);
    VU_EQ(rdma_destroy_id(*id), 0);
    *id = NULL;
}

static void accept_as(struct rdma_cm_id *id, const struct ibv_mr *mr)
{
    const struct hostile_offer offer = {(uintptr_t)mr->addr, mr->rkey, (uint32_t)mr->length};
    struct rdma_conn_param param = {.private_data = &offer,
                                    .private_data_len = sizeof(offer),
                                    .initiator_depth = 4,
                                    .responder_resources = 4};
    rdma_accept(id, &param); /* a stranger may have gone already */
}

/* A message and a READ of what is not there, so that answers may be feigned, too. */
static void ask_stranger(struct server *s, struct rdma_cm_id *id)
{
    struct vu_send send = {.opcode = IBV_WR_SEND,
                           .addr = s->open,
                           .len_bytes = RECEIVE_BYTES,
                           .lkey = s->open_mr->lkey};
    (void)!vu_post_send(id->qp, &send); /* it may have ended */
    send = (struct vu_send){.opcode = IBV_WR_RDMA_READ,
                            .addr = s->received,
                            .len_bytes = RECEIVE_BYTES,
                            .lkey = s->open_mr->lkey,
                            .remote = 4096,
                            .rkey = 1};
    (void)!vu_post_send(id->qp, &send);
}

static void take_stranger(struct server *s, struct rdma_cm_id *id)
{
    struct rdma_cm_id **place = &s->strangers[s->next++ % STRANGERS];
    end_id(place);
    make_qp(s, id);
    *place = id;
    for (uint64_t i = 0; i < RECEIVES; i++)
        VU_EQ(vu_post_recv(id->qp, i, s->open + i * RECEIVE_BYTES, RECEIVE_BYTES, s->open_mr->lkey),
              0);
    accept_as(id, s->open_mr);
    s->accepted++;
}

static void take_request(struct server *s, struct rdma_cm_id *id,
                         const struct rdma_conn_param *param)
{
    const bool is_good =
        param->private_data_len >= sizeof(good) && !memcmp(param->private_data, good, sizeof(good));
    if (!is_good) {
        take_stranger(s, id);
        return;
    }
    keeps_descriptors();
    end_id(&s->peer);
    make_qp(s, id);
    s->peer = id;
    accept_as(id, s->good_mr);
}

static bool is_stranger(const struct server *s, const struct rdma_cm_id *id)
{
    for (uint32_t i = 0; i < STRANGERS; i++)
        if (s->strangers[i] == id)
            return true;
    return false;
}

static void take_event(struct server *s)
{
    struct rdma_cm_event *event;
    VU_EQ(rdma_get_cm_event(s->events, &event), 0);
    const enum rdma_cm_event_type type = event->event;
    struct rdma_cm_id *id = event->id;
    uint8_t data[256];
    struct rdma_conn_param param = event->param.conn;
    memcpy(data, param.private_data ? param.private_data : "", param.private_data_len);
    param.private_data = data;
    VU_EQ(rdma_ack_cm_event(event), 0);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
        take_request(s, id, &param);
    else if (type == RDMA_CM_EVENT_ESTABLISHED && is_stranger(s, id))
        ask_stranger(s, id);
}

static uint16_t listen_here(struct server *s)
{
    struct sockaddr_in address = at_loopback(0);
    s->events = rdma_create_event_channel();
    VU_TRUE(s->events);
    VU_EQ(rdma_create_id(s->events, &s->listener, NULL, RDMA_PS_TCP), 0);
    VU_EQ(rdma_bind_addr(s->listener, (struct sockaddr *)&address), 0);
    VU_EQ(rdma_listen(s->listener, 16), 0);
    return ntohs(rdma_get_src_port(s->listener));
}

static void serve_until_told(struct server *s)
{
    struct pollfd what[] = {{.fd = s->events->fd, .events = POLLIN},
                            {.fd = s->sock, .events = POLLIN}};
    struct ibv_wc wc[16];
    do {
        poll(what, 2, 1);
        if (what[0].revents & POLLIN)
            take_event(s);
        while (s->cq && ibv_poll_cq(s->cq, 16, wc) > 0)
            ;
    } while (!(what[1].revents & POLLIN));
}

static void has_as_many_descriptors(int before)
{
    int now = count_descriptors();
    for (uint64_t end = vu_now_ms() + PATIENCE_MS; now > before + SPARE_FDS; vu_sleep_ms(10)) {
        VU_CHECK(vu_now_ms() < end, "%d descriptors, and %d at the beginning", now, before);
        now = count_descriptors();
    }
}

static void serve_all(int sock, void *arg)
{
    static struct server s;
    struct rlimit limit = {.rlim_max = DESCRIPTORS, .rlim_cur = DESCRIPTORS};
    (void)arg;
    VU_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    s.sock = sock;
    memset(s.guarded, 0x5a, sizeof(s.guarded));
    const uint16_t port = listen_here(&s);
    vu_put(sock, &port, sizeof(port));
    const int before = count_descriptors();
    uint8_t told;
    serve_until_told(&s);
    vu_get(sock, &told, sizeof(told));
    for (uint32_t i = 0; i < GUARDED_BYTES; i++)
        VU_EQ(s.guarded[i], 0x5a);
    for (uint32_t i = 0; i < STRANGERS; i++)
        end_id(&s.strangers[i]);
    has_as_many_descriptors(before);
    printf("%u connections of strangers were accepted\n", s.accepted);
    fflush(stdout);
    VU_TRUE(s.accepted);
    vu_barrier(sock);
    _exit(0);
}

/* ---- the peer that behaves ---- */

struct peer {
    struct rdma_event_channel *events;
    struct rdma_cm_id *id;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct hostile_offer offer;
    uint8_t out[BLOCK_BYTES], in[BLOCK_BYTES];
};

static void await_step(struct peer *p, enum rdma_cm_event_type wanted)
{
    struct pollfd readable = {.fd = p->events->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    VU_CHECK(poll(&readable, 1, PATIENCE_MS) == 1, "no %s", rdma_event_str(wanted));
    VU_EQ(rdma_get_cm_event(p->events, &event), 0);
    VU_CHECK(event->event == wanted, "%s, not %s", rdma_event_str(event->event),
             rdma_event_str(wanted));
    if (wanted == RDMA_CM_EVENT_ESTABLISHED) {
        VU_TRUE(event->param.conn.private_data_len >= sizeof(p->offer));
        memcpy(&p->offer, event->param.conn.private_data, sizeof(p->offer));
    }
    VU_EQ(rdma_ack_cm_event(event), 0);
}

static void connect_peer(struct peer *p, uint16_t port)
{
    struct sockaddr_in to = at_loopback(port);
    p->events = rdma_create_event_channel();
    VU_TRUE(p->events);
    VU_EQ(rdma_create_id(p->events, &p->id, NULL, RDMA_PS_TCP), 0);
    VU_EQ(rdma_resolve_addr(p->id, NULL, (struct sockaddr *)&to, RESOLVE_MS), 0);
    await_step(p, RDMA_CM_EVENT_ADDR_RESOLVED);
    VU_EQ(rdma_resolve_route(p->id, RESOLVE_MS), 0);
    await_step(p, RDMA_CM_EVENT_ROUTE_RESOLVED);
    p->cq = ibv_create_cq(p->id->verbs, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = p->cq,
        .recv_cq = p->cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    VU_EQ(rdma_create_qp(p->id, NULL, &init), 0);
    p->mr = ibv_reg_mr(p->id->pd, p, sizeof(*p), IBV_ACCESS_LOCAL_WRITE);
    VU_TRUE(p->cq && p->mr);
    struct rdma_conn_param param = {.private_data = good,
                                    .private_data_len = sizeof(good),
                                    .initiator_depth = 4,
                                    .responder_resources = 4};
    VU_EQ(rdma_connect(p->id, &param), 0);
    await_step(p, RDMA_CM_EVENT_ESTABLISHED);
}

static void leave(struct peer *p)
{
    rdma_destroy_qp(p->id);
    VU_EQ(ibv_dereg_mr(p->mr), 0);
    VU_EQ(ibv_destroy_cq(p->cq), 0);
    VU_EQ(rdma_destroy_id(p->id), 0);
    rdma_destroy_event_channel(p->events);
}

static void post_one(struct peer *p, enum ibv_wr_opcode opcode, void *addr, uint64_t wr_id)
{
    const struct vu_send send = {.opcode = opcode,
                                 .wr_id = wr_id,
                                 .flags = IBV_SEND_SIGNALED,
                                 .addr = addr,
                                 .len_bytes = BLOCK_BYTES,
                                 .lkey = p->mr->lkey,
                                 .remote = p->offer.addr,
                                 .rkey = p->offer.rkey};
    VU_EQ(vu_post_send(p->id->qp, &send), 0);
}

/* What it writes it reads. */
static void behave_once(struct peer *p, uint64_t number)
{
    struct vu_random random = {number};
    vu_random_fill(&random, p->out, BLOCK_BYTES);
    post_one(p, IBV_WR_RDMA_WRITE, p->out, 1);
    post_one(p, IBV_WR_RDMA_READ, p->in, 2);
    vu_expect(p->cq, 1, IBV_WC_SUCCESS);
    vu_expect(p->cq, 2, IBV_WC_SUCCESS);
    VU_EQ(memcmp(p->in, p->out, BLOCK_BYTES), 0);
}

struct foe {
    uint16_t port;
    const struct vu_seeded *options;
};

static void be_hostile(int sock, void *arg)
{
    const struct foe *foe = arg;
    const uint32_t calls = hostile_call(foe->port, foe->options->seed, foe->options->seconds);
    vu_put(sock, &calls, sizeof(calls));
}

static void behave_all(int sock, void *arg)
{
    static struct peer p;
    struct foe foe = {.options = arg};
    int socks[2];
    uint32_t calls = 0;
    uint64_t rounds = 0;
    vu_get(sock, &foe.port, sizeof(foe.port));
    vu_socketpair(socks);
    const pid_t pid = vu_spawn(be_hostile, socks[1], &foe);
    do {
        connect_peer(&p, foe.port); /* anew, beside those that call */
        for (int i = 0; i < 20; i++)
            behave_once(&p, rounds++);
        leave(&p);
    } while (!vu_try_get(socks[0], &calls, sizeof(calls), 0));
    VU_EQ(vu_reap(pid, PATIENCE_MS / 1000), 0);
    printf("%llu requests beside %u hostile calls\n", 2ull * rounds, calls);
    fflush(stdout);
    VU_TRUE(calls);
    vu_put(sock, &calls, 1);
    vu_barrier(sock);
    _exit(0);
}

int main(int argc, char **argv)
{
    if (!namespace_own_network()) {
        printf("SKIP: no network namespace\n");
        return VU_SKIPPED;
    }
    return vu_seeded_pair("iwarp_hostile", argc, argv, serve_all, behave_all);
}
