/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many threads on shared objects: threads [--requests N]. On side A each thread posts to its own QP
 * and to one that all share; all QPs complete to one CQ, which all threads poll at once. On side B
 * every thread sleeps on the one channel and posts receives again. Each request must complete
 * exactly once. Meant above all for the thread sanitizer.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_util/pair.h"

#define THREADS 4
#define QPS (THREADS + 1) /* the last is everybody's */
#define WINDOW 16         /* requests of one thread on the way */
#define RECVS 128         /* of each QP, mostly */
#define LEN 64
#define STUCK_MS 60000

struct shared {
    int requests; /* of each thread */
    int recvs;    /* of each QP; iWARP has no RNR, so there are enough for all that may come */
    struct vu_dev dev;
    struct vu_ep first; /* owns the CQs and the channel */
    struct vu_ep eps[QPS];
    uint8_t *buf;
    struct ibv_mr *mr;
    struct vu_key peer;
    atomic_uint done[THREADS];         /* completions of each thread's requests */
    atomic_bool busy[THREADS][WINDOW]; /* slots with a request on the way */
    atomic_uint received;
    unsigned int expected;
    atomic_bool failed;
};

struct worker {
    struct shared *shared;
    int index;
    pthread_t thread;
};

static void open_all(struct shared *shared, int sock, int requests)
{
    memset(shared, 0, sizeof(*shared));
    shared->requests = requests;
    vu_dev_open(&shared->dev);
    shared->recvs = vu_is_iwarp(&shared->dev) ? requests : RECVS;
    /* Enough for all that may come, too: receivers without a processor look late. */
    struct vu_ep_attr attr = {.channel = true, .cqe = THREADS * ((requests + 3) / 4) + 4096};
    vu_ep_create(&shared->dev, &attr, &shared->first);
    shared->buf = calloc(1, 65536);
    VU_TRUE(shared->buf);
    shared->mr = vu_reg(&shared->dev, shared->buf, 65536, VU_ACCESS_ALL);
    shared->peer = vu_trade_keys(sock, shared->mr);
    struct vu_ep_attr each = {.send_cq = shared->first.scq,
                              .recv_cq = shared->first.rcq,
                              .send_wr = 2 * WINDOW * THREADS,
                              .recv_wr = (uint32_t)shared->recvs};
    for (int i = 0; i < QPS; i++) {
        vu_ep_create(&shared->dev, &each, &shared->eps[i]);
        vu_connect(&shared->eps[i], sock, NULL);
    }
}

static void close_all(struct shared *shared)
{
    for (int i = 0; i < QPS; i++)
        vu_ep_destroy(&shared->eps[i]);
    VU_EQ(ibv_dereg_mr(shared->mr), 0);
    vu_ep_destroy(&shared->first);
    vu_dev_close(&shared->dev);
    free(shared->buf);
}

/* A place of its own for what the request brings, until it is done; -1: all are in use. */
static int take_slot(struct shared *shared, int index)
{
    for (int slot = 0; slot < WINDOW; slot++)
        if (!atomic_exchange(&shared->busy[index][slot], true))
            return slot;
    return -1;
}

static void post_one(struct shared *shared, int index, int number, int slot)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD};
    const bool is_atomic = number % 4 == 3 && !vu_is_iwarp(&shared->dev);
    enum ibv_wr_opcode opcode = opcodes[is_atomic ? 3 : number % 4 == 3 ? 2 : number % 4];
    struct vu_send send = {.opcode = opcode,
                           .wr_id = (uint64_t)index << 8 | (uint64_t)slot,
                           .flags = IBV_SEND_SIGNALED,
                           .addr = shared->buf + 16384 + (index * WINDOW + slot) * LEN,
                           .len_bytes = is_atomic ? 8 : LEN,
                           .lkey = shared->mr->lkey,
                           .remote = shared->peer.addr +
                                     (is_atomic ? 0
                                                : 8192 + 1024 * (unsigned int)index +
                                                      (opcode == IBV_WR_RDMA_READ ? 512 : 0)),
                           .rkey = shared->peer.rkey,
                           .compare_add = 1};
    struct vu_ep *ep = &shared->eps[number / 4 % 3 ? index : QPS - 1];
    VU_EQ(vu_post_send(ep->qp, &send), 0);
}

static void *sender(void *arg)
{
    struct worker *worker = arg;
    struct shared *shared = worker->shared;
    uint64_t deadline = vu_now_ms() + STUCK_MS;
    int posted = 0;
    while (atomic_load(&shared->done[worker->index]) < (unsigned int)shared->requests) {
        int slot = posted < shared->requests ? take_slot(shared, worker->index) : -1;
        if (slot >= 0)
            post_one(shared, worker->index, posted++, slot);
        struct ibv_wc wcs[3];
        int n = ibv_poll_cq(shared->first.scq, 3, wcs); /* anybody's */
        VU_TRUE(n >= 0);
        for (int i = 0; i < n; i++) {
            VU_CHECK(wcs[i].status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wcs[i].status));
            uint64_t index = wcs[i].wr_id >> 8, slot_done = wcs[i].wr_id & 0xff;
            VU_TRUE(index < THREADS && slot_done < WINDOW);
            VU_TRUE(atomic_exchange(&shared->busy[index][slot_done], false));
            atomic_fetch_add(&shared->done[index], 1);
        }
        if (n == 0)
            sched_yield();
        VU_CHECK(vu_now_ms() < deadline, "thread %d: %u of %d done", worker->index,
                 atomic_load(&shared->done[worker->index]), posted);
    }
    return NULL;
}

static void repost(struct shared *shared, const struct ibv_wc *wc)
{
    for (int i = 0; i < QPS; i++)
        if (shared->eps[i].qp->qp_num == wc->qp_num) {
            VU_EQ(vu_post_recv(shared->eps[i].qp, 1, shared->buf + 32768, LEN, shared->mr->lkey),
                  0);
            return;
        }
    VU_FAIL("a completion of QP 0x%x, which is not ours", wc->qp_num);
}

/* Sleeps on the channel (non-blocking: each event is for one thread), arms, polls. */
static void *receiver(void *arg)
{
    struct worker *worker = arg;
    struct shared *shared = worker->shared;
    uint64_t deadline = vu_now_ms() + STUCK_MS;
    while (atomic_load(&shared->received) < shared->expected) {
        struct pollfd pfd = {.fd = shared->first.channel->fd, .events = POLLIN};
        struct ibv_cq *cq;
        void *context;
        if (poll(&pfd, 1, 20) == 1 && ibv_get_cq_event(shared->first.channel, &cq, &context) == 0)
            ibv_ack_cq_events(cq, 1);
        VU_EQ(ibv_req_notify_cq(shared->first.rcq, 0), 0);
        struct ibv_wc wcs[3];
        int n;
        while ((n = ibv_poll_cq(shared->first.rcq, 3, wcs)) > 0)
            for (int i = 0; i < n; i++) {
                VU_CHECK(wcs[i].status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wcs[i].status));
                repost(shared, &wcs[i]);
                atomic_fetch_add(&shared->received, 1);
            }
        VU_EQ(n, 0);
        VU_CHECK(vu_now_ms() < deadline, "%u of %u messages", atomic_load(&shared->received),
                 shared->expected);
    }
    return NULL;
}

static void run_workers(struct shared *shared, void *(*main)(void *))
{
    struct worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.shared = shared, .index = i};
        VU_EQ(pthread_create(&workers[i].thread, NULL, main, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
}

static void side_a(int sock, void *arg)
{
    static struct shared shared;
    open_all(&shared, sock, *(int *)arg);
    vu_barrier(sock);
    run_workers(&shared, sender);
    vu_barrier(sock);
    for (int i = 0; i < THREADS; i++)
        VU_EQ(atomic_load(&shared.done[i]), shared.requests);
    vu_expect_none(shared.first.scq, 10);
    close_all(&shared);
}

static void side_b(int sock, void *arg)
{
    static struct shared shared;
    open_all(&shared, sock, *(int *)arg);
    shared.expected = (unsigned int)(THREADS * ((shared.requests + 3) / 4));
    VU_EQ(fcntl(shared.first.channel->fd, F_SETFL, O_NONBLOCK), 0);
    for (int q = 0; q < QPS; q++)
        for (int i = 0; i < shared.recvs; i++)
            VU_EQ(vu_post_recv(shared.eps[q].qp, 1, shared.buf + 32768, LEN, shared.mr->lkey), 0);
    vu_barrier(sock);
    run_workers(&shared, receiver);
    vu_barrier(sock);
    uint64_t sum;
    memcpy(&sum, shared.buf, sizeof(sum));
    VU_EQ(sum, vu_is_iwarp(&shared.dev) ? 0 : THREADS * (shared.requests / 4));
    VU_EQ(atomic_load(&shared.received), shared.expected);
    close_all(&shared);
}

int main(int argc, char **argv)
{
    int requests = 8000;
    if (argc == 3 && strcmp(argv[1], "--requests") == 0)
        requests = atoi(argv[2]);
    else if (argc != 1)
        VU_FAIL("usage: threads [--requests N]");
    VU_TRUE(requests > 0 && requests % 4 == 0);
    return vu_run_pair(VU_PROCESSES, side_a, side_b, &requests, 90);
}
