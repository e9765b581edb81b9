/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: the requester's counters and timers (IBTA Vol1 9.7.5, 9.7.6), and what completions of
 * failed requests still say. */
#include <string.h>

#include "sem.h"

/* A timeout of 0 is none: a request waits for a peer that is not ready, however long it takes
 * (C9-141). */
static void no_timeout_a(int sock, int param)
{
    (void)param;
    struct rig_attr attr = {.conn = vu_conn_default};
    struct rig rig;
    rig_prepare(&rig, sock, &attr);
    struct vu_peer peer = rig_trade(&rig);
    attr.conn.timeout = 0;
    attr.conn.retry_cnt = 0;
    rig_rts(&rig, &peer, &attr.conn);
    memset(rig.buf, 0xa1, 64);
    struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 64);
    rig_post(&rig, &send);
    vu_expect_none(rig.ep.scq, 1200); /* any timer would have run out by then */
    vu_barrier(sock);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void no_timeout_b(int sock, int param)
{
    (void)param;
    struct rig_attr attr = {.conn = vu_conn_default};
    struct rig rig;
    rig_prepare(&rig, sock, &attr);
    struct vu_peer peer = rig_trade(&rig);
    vu_barrier(sock);
    vu_ep_init(&rig.ep, &attr.conn);
    vu_ep_rtr(&rig.ep, &peer, &attr.conn);
    vu_barrier(sock);
    rig_bytes(&rig, 0, 64, 0xa1);
    rig_close(&rig);
}

/* Each message has all its RNR tries: those a message before it has used do not count. One try is
 * used of each; the others are for a receiver that gets no processor, while its engine says that
 * there is no receive. */
#define RNR_ROUNDS 7
#define RNR_TRIES 5
#define RNR_TIMER_491MS 31 /* encodes 491.52 ms (IBTA Vol1 table 45) */
#define RNR_WAIT_MS 100
_Static_assert(RNR_ROUNDS > RNR_TRIES, "together they use up more than one message has");

static void rnr_again_a(int sock, int param)
{
    (void)param;
    struct rig_attr attr = {.conn = vu_conn_default};
    attr.conn.rnr_retry = RNR_TRIES;
    struct rig rig;
    rig_open(&rig, sock, &attr);
    for (uint64_t round = 0; round < RNR_ROUNDS; round++) {
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, round, 0, 64);
        vu_barrier(sock);
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, round, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void rnr_again_b(int sock, int param)
{
    (void)param;
    struct rig_attr attr = {.conn = vu_conn_default};
    attr.conn.min_rnr_timer = RNR_TIMER_491MS;
    struct rig rig;
    rig_open(&rig, sock, &attr);
    for (uint64_t round = 0; round < RNR_ROUNDS; round++) {
        vu_barrier(sock);
        vu_sleep_ms(RNR_WAIT_MS);
        rig_recv(&rig, round, 0, 64);
        vu_expect(rig.ep.rcq, round, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

/* More READs and atomics than may be outstanding wait their turn; none is refused, and they take
 * effect in order. */
#define DEPTH_OPS 60

static void depth_a(int sock, int param)
{
    struct rig_attr attr = {.conn = vu_conn_default, .ep = {.send_wr = DEPTH_OPS}};
    attr.conn.rd_atomic = attr.conn.dest_rd_atomic = (uint8_t)param;
    struct rig rig;
    rig_open(&rig, sock, &attr);
    for (uint32_t i = 0; i < DEPTH_OPS; i++) {
        struct vu_send send =
            rig_send(&rig, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD, i, 8 * i, 8);
        send.remote = rig.peer.addr;
        send.compare_add = 1;
        rig_post(&rig, &send);
    }
    for (uint32_t i = 0; i < DEPTH_OPS; i++) {
        struct ibv_wc wc = vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
        VU_EQ(wc.byte_len, 8);
        uint64_t seen;
        memcpy(&seen, rig.buf + 8 * i, 8);
        VU_EQ(seen, (i + 1) / 2); /* a READ sees the atomic before it */
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void depth_b(int sock, int param)
{
    struct rig_attr attr = {.conn = vu_conn_default};
    attr.conn.rd_atomic = attr.conn.dest_rd_atomic = (uint8_t)param;
    struct rig rig;
    rig_open(&rig, sock, &attr);
    vu_barrier(sock);
    rig_close(&rig);
}

/* In a failed completion wr_id, status and qp_num count (11.4.2.1): also in flushed ones, of both
 * queues, where QPs share a CQ. */
static void names_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_ep_attr shared = {.send_cq = rig.ep.scq, .recv_cq = rig.ep.rcq};
    struct vu_ep second;
    vu_ep_create(&rig.dev, &shared, &second);
    vu_connect(&second, sock, NULL);
    const struct ibv_qp *qps[2] = {rig.ep.qp, second.qp};
    for (uint64_t i = 0; i < 2; i++) {
        struct ibv_qp *qp = i ? second.qp : rig.ep.qp;
        VU_EQ(vu_post_recv(qp, 10 + i, rig.buf, 64, rig.mr->lkey), 0);
        struct vu_send bad = rig_send(&rig, IBV_WR_RDMA_WRITE, 20 + i, 0, 64);
        struct vu_send after = rig_send(&rig, IBV_WR_RDMA_WRITE, 30 + i, 0, 64);
        bad.rkey ^= 0x5a5a5a00;
        VU_EQ(vu_post_send(qp, &bad), 0);
        VU_EQ(vu_post_send(qp, &after), 0);
    }
    struct ibv_wc wcs[4];
    VU_EQ(vu_poll(rig.ep.scq, wcs, 4, 20000), 4);
    for (int i = 0; i < 4; i++) {
        VU_EQ(wcs[i].qp_num, qps[wcs[i].wr_id % 10]->qp_num);
        VU_EQ(wcs[i].status, wcs[i].wr_id < 30 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
    }
    VU_EQ(vu_poll(rig.ep.rcq, wcs, 2, 20000), 2);
    for (int i = 0; i < 2; i++) {
        VU_EQ(wcs[i].qp_num, qps[wcs[i].wr_id % 10]->qp_num);
        VU_EQ(wcs[i].status, IBV_WC_WR_FLUSH_ERR);
    }
    vu_barrier(sock);
    vu_ep_destroy(&second);
    rig_close(&rig);
}

/* A list of receives stops at the first that cannot be posted; those before it are. */
static void bad_recv_a(int sock, int param)
{
    (void)param;
    struct rig_attr attr = {.ep = {.recv_sge = 2}};
    struct rig rig;
    rig_open(&rig, sock, &attr);
    struct ibv_qp_attr qp_attr;
    struct ibv_qp_init_attr init;
    VU_EQ(ibv_query_qp(rig.ep.qp, &qp_attr, IBV_QP_CAP, &init), 0);
    VU_TRUE(init.cap.max_recv_sge < 64);
    struct ibv_sge sges[64];
    for (int i = 0; i < 64; i++)
        sges[i] = (struct ibv_sge){(uintptr_t)rig.buf, 1, rig.mr->lkey};
    struct ibv_recv_wr wrs[3], *bad = NULL;
    for (uint64_t i = 0; i < 3; i++)
        wrs[i] = (struct ibv_recv_wr){
            .wr_id = 10 + i, .next = i < 2 ? &wrs[i + 1] : NULL, .sg_list = sges, .num_sge = 1};
    wrs[1].num_sge = (int)init.cap.max_recv_sge + 1;
    VU_TRUE(ibv_post_recv(rig.ep.qp, wrs, &bad) != 0);
    VU_TRUE(bad == &wrs[1]);
    vu_ep_to(&rig.ep, IBV_QPS_ERR);
    vu_expect(rig.ep.rcq, 10, IBV_WC_WR_FLUSH_ERR);
    vu_expect_none(rig.ep.rcq, 20);
    vu_barrier(sock);
    rig_close(&rig);
}

const struct sem_case sem_requester[] = {
    {"timeout__0_is_for_ever", no_timeout_a, no_timeout_b, 0},
    {"rnr_retry__counts_anew_for_each_message", rnr_again_a, rnr_again_b, 0},
    {"rd_atomic__one_at_a_time", depth_a, depth_b, 1},
    {"rd_atomic__a_few_at_a_time", depth_a, depth_b, 4},
    {"error_completion__names_its_qp", names_a, sem_two_idle, 0},
    {"post_recv__bad_request_in_list", bad_recv_a, sem_idle, 0},
    {0},
};
