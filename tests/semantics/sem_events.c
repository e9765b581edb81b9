/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: completion channels, arming, solicited work, CQ overflow and resize. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "sem.h"

#define QUIET_MS 60
#define POLLER_ROUNDS 20
#define EVENT_MS 20000

static void events_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    static const unsigned int flags[] = {0, 0, IBV_SEND_SOLICITED, 0};
    for (unsigned int i = 0; i < 4; i++) {
        vu_barrier(sock); /* armed */
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, i, 0, 64);
        send.flags |= flags[i];
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
        vu_barrier(sock);
    }
    vu_barrier(sock);
    struct vu_send imm = rig_send(&rig, IBV_WR_RDMA_WRITE_WITH_IMM, 4, 4096, 64);
    imm.flags |= IBV_SEND_SOLICITED;
    rig_post(&rig, &imm);
    vu_expect(rig.ep.scq, 4, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

/* Not armed: no event. Armed: one event for one arming. Solicited only: just those, and errors. */
static void events_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.channel = true}};
    rig_open(&rig, sock, &attr);
    for (unsigned int i = 0; i < 6; i++)
        rig_recv(&rig, i, 8192, 64);

    vu_barrier(sock);
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 0, IBV_WC_SUCCESS);
    VU_CHECK(!vu_cq_event(rig.ep.channel, QUIET_MS), "event of a CQ that is not armed");

    VU_EQ(ibv_req_notify_cq(rig.ep.rcq, 1), 0);
    vu_barrier(sock);
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 1, IBV_WC_SUCCESS);
    VU_CHECK(!vu_cq_event(rig.ep.channel, QUIET_MS), "event of unsolicited work");

    vu_barrier(sock);
    VU_CHECK(vu_cq_event(rig.ep.channel, EVENT_MS), "no event of solicited work");
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 2, IBV_WC_SUCCESS);

    VU_EQ(ibv_req_notify_cq(rig.ep.rcq, 0), 0);
    vu_barrier(sock);
    VU_CHECK(vu_cq_event(rig.ep.channel, EVENT_MS), "no event of a CQ armed for any");
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 3, IBV_WC_SUCCESS);
    VU_CHECK(!vu_cq_event(rig.ep.channel, QUIET_MS), "second event of one arming");

    VU_EQ(ibv_req_notify_cq(rig.ep.rcq, 1), 0);
    vu_barrier(sock);
    VU_CHECK(vu_cq_event(rig.ep.channel, EVENT_MS), "no event of a solicited WRITE with immediate");
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 4, IBV_WC_SUCCESS);

    VU_EQ(ibv_req_notify_cq(rig.ep.rcq, 1), 0);
    vu_ep_to(&rig.ep, IBV_QPS_ERR);
    VU_CHECK(vu_cq_event(rig.ep.channel, EVENT_MS), "no event of a flushed receive");
    vu_expect(rig.ep.rcq, 5, IBV_WC_WR_FLUSH_ERR);
    rig_close(&rig);
}

/* A sender's own completions wake it as well: for each opcode it sleeps until the event comes. */
static void send_events_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.channel = true}};
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND};
    rig_open(&rig, sock, &attr);
    for (unsigned int i = 0; i < 5; i++) {
        VU_EQ(ibv_req_notify_cq(rig.ep.scq, 0), 0);
        struct vu_send send = rig_send(&rig, opcodes[i], i, 0, 8);
        rig_post(&rig, &send);
        if (i == 4) /* has to wait for a receive while we sleep */
            vu_barrier(sock);
        VU_CHECK(vu_cq_event(rig.ep.channel, EVENT_MS), "no event of request %u", i);
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void send_events_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    rig_recv(&rig, 1, 8192, 64);
    vu_barrier(sock);
    vu_sleep_ms(50);
    rig_recv(&rig, 2, 8192, 64);
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 1, IBV_WC_SUCCESS);
    vu_expect(rig.ep.rcq, 2, IBV_WC_SUCCESS);
    rig_close(&rig);
}

/* Both sleep for every message. Arm, then poll, then wait: no wake-up may be lost, whenever the
 * message comes. */
static void ping(int sock, int rounds, bool first)
{
    struct rig rig;
    struct rig_attr attr = {.ep = {.channel = true}};
    rig_open(&rig, sock, &attr);
    struct vu_random random = {first ? 11 : 22};
    for (unsigned int i = 0; i < 16; i++)
        rig_recv(&rig, i, 64 * i, 64);
    vu_barrier(sock);
    if (first) {
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, 99, 32768, 32);
        rig_post(&rig, &send);
    }
    for (int i = 0; i < rounds; i++) {
        struct ibv_wc wc;
        VU_EQ(ibv_req_notify_cq(rig.ep.rcq, 0), 0);
        for (uint32_t spin = vu_random_below(&random, 300); spin > 0; spin--)
            __asm__ volatile("");
        int n = ibv_poll_cq(rig.ep.rcq, 1, &wc);
        while (n == 0) {
            VU_CHECK(vu_cq_event(rig.ep.channel, EVENT_MS), "lost wake-up in round %d", i);
            VU_EQ(ibv_req_notify_cq(rig.ep.rcq, 0), 0);
            n = ibv_poll_cq(rig.ep.rcq, 1, &wc);
        }
        VU_EQ(wc.status, IBV_WC_SUCCESS);
        rig_recv(&rig, wc.wr_id, 64 * (uint32_t)wc.wr_id, 64);
        if (!first || i + 1 < rounds) {
            struct vu_send send = rig_send(&rig, IBV_WR_SEND, 99, 32768, 32);
            rig_post(&rig, &send);
        }
        while (ibv_poll_cq(rig.ep.scq, 1, &wc) > 0)
            VU_EQ(wc.status, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void ping_a(int sock, int param)
{
    ping(sock, param, true);
}

static void ping_b(int sock, int param)
{
    ping(sock, param, false);
}

/* A program that has polled for a while, and then does something else, is still served. */
static void poller_leaves_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    memset(rig.buf, 0xa1, RIG_BYTES);
    for (unsigned int i = 0; i < POLLER_ROUNDS; i++) {
        vu_barrier(sock);
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, 64);
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
        vu_barrier(sock);
        struct vu_send read = rig_send(&rig, IBV_WR_RDMA_READ, 2, 4096, 64);
        rig_post(&rig, &read);
        vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void poller_leaves_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct ibv_wc wc;
    rig_open(&rig, sock, NULL);
    for (unsigned int i = 0; i < POLLER_ROUNDS; i++) {
        rig_recv(&rig, i, 0, 64);
        vu_sleep_ms(20);
        vu_barrier(sock);
        vu_expect(rig.ep.rcq, i, IBV_WC_SUCCESS);
        for (int polls = 0; polls < 200; polls++)
            VU_EQ(ibv_poll_cq(rig.ep.rcq, 1, &wc), 0);
        vu_barrier(sock);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

/* More completions than the CQ holds: an event, and its QP is lost. */
static void overflow_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    int total = 0;
    vu_get(sock, &total, sizeof(total));
    for (int i = 0; i < total; i++) {
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, (uint64_t)i, 0, 8);
        struct ibv_wc wc;
        rig_post(&rig, &send);
        if (vu_poll(rig.ep.scq, &wc, 1, 5000) != 1 || wc.status != IBV_WC_SUCCESS)
            break; /* the overflow has reached us */
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void overflow_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.cqe = 4, .recv_wr = 600}};
    rig_open(&rig, sock, &attr);
    int total = rig.ep.rcq->cqe + 3;
    VU_TRUE(total <= 600);
    for (int i = 0; i < total; i++)
        rig_recv(&rig, (uint64_t)i, 0, 8);
    vu_put(sock, &total, sizeof(total));
    vu_barrier(sock);
    VU_CHECK(vu_async_event(rig.dev.ctx, IBV_EVENT_CQ_ERR, EVENT_MS), "no CQ error event");
    VU_CHECK(vu_async_event(rig.dev.ctx, IBV_EVENT_QP_FATAL, EVENT_MS), "its QP lives on");
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    vu_ep_destroy(&rig.ep);
    VU_EQ(ibv_dereg_mr(rig.mr), 0);
    vu_dev_close(&rig.dev);
}

/* Resizing keeps what is queued, in order, and refuses to lose any. */
static void resize_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.cqe = 16}};
    rig_open(&rig, sock, &attr);
    for (unsigned int i = 0; i < 10; i++) {
        struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, i, 0, 8);
        rig_post(&rig, &send);
    }
    vu_expect(rig.ep.scq, 0, IBV_WC_SUCCESS);
    vu_sleep_ms(20);
    VU_EQ(ibv_resize_cq(rig.ep.scq, 100), 0);
    VU_TRUE(rig.ep.scq->cqe >= 100);
    for (unsigned int i = 10; i < 60; i++) {
        struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, i, 0, 8);
        send.flags = i % 2 ? IBV_SEND_SIGNALED : 0;
        rig_post(&rig, &send);
    }
    vu_sleep_ms(20);
    VU_TRUE(ibv_resize_cq(rig.ep.scq, 4) != 0 || rig.ep.scq->cqe >= 34);
    for (unsigned int i = 1; i < 60; i++)
        if (i < 10 || i % 2)
            vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
    vu_expect_none(rig.ep.scq, 5);
    vu_barrier(sock);
    rig_close(&rig);
}

/* A QP in RTR that its peer begins to use says so, once, whatever the peer does first. */
static void established_a(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {0};
    rig_prepare(&rig, sock, &attr);
    struct vu_peer peer = rig_trade(&rig);
    rig_rts(&rig, &peer, &vu_conn_default);
    vu_barrier(sock); /* the other side is in RTR */
    vu_barrier(sock); /* and has seen that nothing comes */
    for (unsigned int i = 0; i < 3; i++) {
        struct vu_send send = rig_send(&rig, (enum ibv_wr_opcode)param, i, 0, 64);
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void established_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {0};
    rig_prepare(&rig, sock, &attr);
    struct vu_peer peer = rig_trade(&rig);
    vu_ep_init(&rig.ep, &vu_conn_default);
    for (unsigned int i = 0; i < 3; i++)
        rig_recv(&rig, i, 0, 64);
    vu_ep_rtr(&rig.ep, &peer, &vu_conn_default);
    vu_barrier(sock);
    VU_CHECK(!vu_async_event(rig.dev.ctx, IBV_EVENT_COMM_EST, QUIET_MS), "event of nothing");
    vu_barrier(sock);
    VU_CHECK(vu_async_event(rig.dev.ctx, IBV_EVENT_COMM_EST, EVENT_MS), "no event");
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTR);
    VU_CHECK(!vu_async_event(rig.dev.ctx, IBV_EVENT_COMM_EST, QUIET_MS), "a second event");
    vu_ep_rts(&rig.ep, &vu_conn_default);
    vu_barrier(sock);
    rig_close(&rig);
}

const struct sem_case sem_events[] = {
    {"comm_est__send", established_a, established_b, IBV_WR_SEND},
    {"comm_est__write", established_a, established_b, IBV_WR_RDMA_WRITE},
    {"req_notify__any_and_solicited", events_a, events_b, 0},
    {"req_notify__senders_completions", send_events_a, send_events_b, 0},
    {"req_notify__races_with_polling", ping_a, ping_b, 5000},
    {"poller__leaves_and_is_served", poller_leaves_a, poller_leaves_b, 0},
    {"cq__overflow", overflow_a, overflow_b, 0},
    {"cq__resize_keeps_entries", resize_a, sem_idle, 0},
    {0},
};
