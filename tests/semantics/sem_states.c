/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: the QP states a program drives, posting in each, going to ERR and back, and the order of
 * flushes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sem.h"

static void nothing(int sock, int param)
{
    (void)sock;
    (void)param;
}

static int modify(struct vu_ep *ep, enum ibv_qp_state state, int mask)
{
    struct ibv_qp_attr attr = {
        .qp_state = state,
        .port_num = 1,
        .qp_access_flags = VU_ACCESS_REMOTE,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = ep->qp->qp_num,
        .max_dest_rd_atomic = 1,
        .max_rd_atomic = 1,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = ep->dev->gid, .hop_limit = 1}}};
    attr.ah_attr.grh.sgid_index = (uint8_t)ep->dev->gid_index;
    return ibv_modify_qp(ep->qp, &attr, mask);
}

#define TO_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define TO_RTR                                                                      \
    (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define TO_RTS                                                                             \
    (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | \
     IBV_QP_MAX_QP_RD_ATOMIC)

/* IBTA Vol1 table 91: a missing required attribute, one that does not belong, or a step that does
 * not exist changes nothing. */
static void table_a(int sock, int param)
{
    (void)sock;
    (void)param;
    struct vu_dev dev;
    struct vu_ep ep;
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_RESET);
    VU_EQ(modify(&ep, IBV_QPS_RTR, TO_RTR), EINVAL);
    VU_EQ(modify(&ep, IBV_QPS_RTS, TO_RTS), EINVAL);
    for (int bit = 0; bit < 25; bit++)
        if (TO_INIT & 1 << bit && 1 << bit != IBV_QP_STATE)
            VU_EQ(modify(&ep, IBV_QPS_INIT, TO_INIT & ~(1 << bit)), EINVAL);
    VU_EQ(modify(&ep, IBV_QPS_INIT, TO_INIT | IBV_QP_TIMEOUT), EINVAL);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_RESET);

    VU_EQ(modify(&ep, IBV_QPS_INIT, TO_INIT), 0);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_INIT);
    VU_EQ(modify(&ep, IBV_QPS_INIT, TO_INIT), 0);
    VU_EQ(modify(&ep, IBV_QPS_RTS, TO_RTS), EINVAL);
    for (int bit = 0; bit < 25; bit++)
        if (TO_RTR & 1 << bit && 1 << bit != IBV_QP_STATE)
            VU_EQ(modify(&ep, IBV_QPS_RTR, TO_RTR & ~(1 << bit)), EINVAL);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_INIT);

    VU_EQ(modify(&ep, IBV_QPS_RTR, TO_RTR), 0);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_RTR);
    for (int bit = 0; bit < 25; bit++)
        if (TO_RTS & 1 << bit && 1 << bit != IBV_QP_STATE)
            VU_EQ(modify(&ep, IBV_QPS_RTS, TO_RTS & ~(1 << bit)), EINVAL);
    VU_EQ(modify(&ep, IBV_QPS_INIT, TO_INIT), EINVAL);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_RTR);

    VU_EQ(modify(&ep, IBV_QPS_RTS, TO_RTS), 0);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_RTS);
    VU_EQ(modify(&ep, IBV_QPS_RTR, TO_RTR), EINVAL);
    VU_EQ(modify(&ep, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER), 0);
    VU_EQ(modify(&ep, IBV_QPS_ERR, IBV_QP_STATE), 0);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_ERR);
    VU_EQ(modify(&ep, IBV_QPS_RTS, TO_RTS), EINVAL);
    VU_EQ(modify(&ep, IBV_QPS_RESET, IBV_QP_STATE), 0);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_RESET);
    vu_ep_destroy(&ep);
    vu_dev_close(&dev);
}

/* Attributes that were set can be asked for. */
static void query_a(int sock, int param)
{
    (void)sock;
    (void)param;
    struct vu_dev dev;
    struct vu_ep ep;
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    struct vu_peer self = vu_ep_self(&ep);
    struct vu_conn conn = {.access = IBV_ACCESS_REMOTE_READ,
                           .rd_atomic = 3,
                           .dest_rd_atomic = 5,
                           .timeout = 15,
                           .retry_cnt = 4,
                           .rnr_retry = 2,
                           .min_rnr_timer = 9};
    vu_ep_init(&ep, &conn);
    vu_ep_rtr(&ep, &self, &conn);
    vu_ep_rts(&ep, &conn);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    memset(&attr, 0, sizeof(attr));
    VU_EQ(ibv_query_qp(ep.qp, &attr, 0x1fffff, &init), 0);
    VU_EQ(attr.qp_state, IBV_QPS_RTS);
    VU_EQ(attr.dest_qp_num, self.qpn);
    VU_EQ(attr.qp_access_flags & VU_ACCESS_ALL, IBV_ACCESS_REMOTE_READ);
    VU_EQ(attr.rq_psn, 0x123);
    VU_EQ(attr.sq_psn, 0x123);
    VU_EQ(attr.path_mtu, dev.mtu);
    VU_EQ(attr.timeout, 15);
    VU_EQ(attr.retry_cnt, 4);
    VU_EQ(attr.rnr_retry, 2);
    VU_EQ(attr.min_rnr_timer, 9);
    VU_TRUE(attr.max_rd_atomic >= 3 && attr.max_dest_rd_atomic >= 5); /* may be rounded up */
    VU_EQ(attr.port_num, 1);
    VU_EQ(attr.ah_attr.is_global, 1);
    VU_EQ(attr.ah_attr.grh.sgid_index, dev.gid_index);
    VU_EQ(memcmp(&attr.ah_attr.grh.dgid, &dev.gid, 16), 0);
    VU_TRUE(attr.cap.max_send_wr >= 64 && attr.cap.max_recv_wr >= 64);
    VU_TRUE(init.qp_type == IBV_QPT_RC && init.send_cq == ep.scq && init.recv_cq == ep.rcq);
    vu_ep_destroy(&ep);
    vu_dev_close(&dev);
}

static void posting_a(int sock, int param)
{
    (void)sock;
    (void)param;
    struct rig rig;
    struct rig_attr attr = {0};
    rig_prepare(&rig, sock, &attr);
    struct vu_send send = {.opcode = IBV_WR_SEND, .wr_id = 1, .flags = IBV_SEND_SIGNALED};
    struct vu_peer self = vu_ep_self(&rig.ep);
    VU_EQ(vu_post_send(rig.ep.qp, &send), EINVAL);
    VU_EQ(vu_post_recv(rig.ep.qp, 1, rig.buf, 64, rig.mr->lkey), EINVAL);
    vu_ep_init(&rig.ep, &vu_conn_default);
    VU_EQ(vu_post_send(rig.ep.qp, &send), EINVAL);
    rig_recv(&rig, 10, 0, 64);
    vu_ep_rtr(&rig.ep, &self, &vu_conn_default);
    VU_EQ(vu_post_send(rig.ep.qp, &send), EINVAL);
    rig_recv(&rig, 11, 64, 64);
    vu_ep_rts(&rig.ep, &vu_conn_default);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS);
    vu_ep_to(&rig.ep, IBV_QPS_ERR);
    vu_expect(rig.ep.rcq, 11, IBV_WC_WR_FLUSH_ERR);
    /* In ERR both queues take work and flush it, also unsignaled work. */
    rig_recv(&rig, 12, 0, 64);
    send.wr_id = 2;
    send.flags = 0;
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 2, IBV_WC_WR_FLUSH_ERR);
    vu_expect(rig.ep.rcq, 12, IBV_WC_WR_FLUSH_ERR);
    rig_close(&rig);
}

#define FLUSH_COUNT 20

/* Both queues flush in the order of posting; the SQ is stuck behind an RNR, every third request
 * unsignaled. */
static void flush_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    for (unsigned int i = 0; i < FLUSH_COUNT; i++) {
        struct vu_send send = rig_send(&rig, i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, i, 0, 64);
        send.flags = i % 3 ? IBV_SEND_SIGNALED : 0;
        rig_post(&rig, &send);
        rig_recv(&rig, 100 + i, 4096, 64);
    }
    vu_expect_none(rig.ep.scq, 20);
    vu_ep_to(&rig.ep, IBV_QPS_ERR);
    for (unsigned int i = 0; i < FLUSH_COUNT; i++) {
        struct ibv_wc wc = vu_expect(rig.ep.scq, i, IBV_WC_WR_FLUSH_ERR);
        VU_EQ(wc.qp_num, rig.ep.qp->qp_num);
        wc = vu_expect(rig.ep.rcq, 100 + i, IBV_WC_WR_FLUSH_ERR);
        VU_EQ(wc.qp_num, rig.ep.qp->qp_num);
    }
    vu_expect_none(rig.ep.scq, 20);
    vu_expect_none(rig.ep.rcq, 20);
    vu_barrier(sock);
    rig_close(&rig);
}

/* Going to RESET drops queued work silently and empties the CQs of it; the QP can be connected
 * again, many times. */
static void reuse(int sock, bool is_a)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    for (int round = 0; round < 20; round++) {
        for (unsigned int i = 0; i < 4; i++)
            rig_recv(&rig, i, 4096 + 64 * i, 64);
        vu_barrier(sock);
        memset(rig.buf, (is_a ? 0x40 : 0x80) + round, 64);
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, 50, 0, 64);
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, 50, IBV_WC_SUCCESS);
        vu_expect(rig.ep.rcq, 0, IBV_WC_SUCCESS);
        rig_bytes(&rig, 4096, 64, (uint8_t)((is_a ? 0x80 : 0x40) + round));
        rig_post(&rig,
                 &send); /* its completions stay unpolled, three receives at least stay posted */
        vu_barrier(sock);
        if (round % 2)
            vu_ep_to(&rig.ep, IBV_QPS_ERR);
        vu_ep_to(&rig.ep, IBV_QPS_RESET);
        vu_expect_none(rig.ep.scq, 2);
        vu_expect_none(rig.ep.rcq, 2);
        vu_connect(&rig.ep, sock, NULL);
    }
    rig_close(&rig);
}

static void reuse_a(int sock, int param)
{
    (void)param;
    reuse(sock, true);
}

static void reuse_b(int sock, int param)
{
    (void)param;
    reuse(sock, false);
}

/* Destroying a QP takes the unpolled completions of its requests with it; others' stay. */
static void destroy_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct vu_ep second;
    rig_open(&rig, sock, NULL);
    struct vu_ep_attr attr = {.send_cq = rig.ep.scq, .recv_cq = rig.ep.rcq};
    vu_ep_create(&rig.dev, &attr, &second);
    vu_connect(&second, sock, NULL);
    for (unsigned int i = 0; i < 6; i++) {
        struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, i, 0, 64);
        VU_EQ(vu_post_send(i % 2 ? second.qp : rig.ep.qp, &send), 0);
    }
    vu_sleep_ms(20);
    vu_ep_destroy(&second);
    for (unsigned int i = 0; i < 6; i += 2)
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
    vu_expect_none(rig.ep.scq, 5);
    vu_barrier(sock);
    rig_close(&rig);
}

static void busy_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {0};
    rig_prepare(&rig, sock, &attr);
    VU_EQ(ibv_destroy_cq(rig.ep.scq), EBUSY);
    VU_EQ(ibv_destroy_cq(rig.ep.rcq), EBUSY);
    VU_EQ(ibv_dealloc_pd(rig.dev.pd), EBUSY);
    rig_close(&rig);
}

static struct ibv_qp_attr queried(struct vu_ep *ep)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    VU_EQ(ibv_query_qp(ep->qp, &attr, 0x1fffff, &init), 0);
    return attr;
}

/* Posted in SQD: taken, and not sent before RTS. Requests under way when the state is entered are
 * finished, and then the event comes, once; without the wish there is none. IBTA Vol1 10.3.1.5 */
static void drain_a(int sock, int param)
{
    const uint32_t len_bytes = (uint32_t)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    memset(rig.buf, 0x5a, len_bytes);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
    for (unsigned int i = 0; i < 3; i++) {
        struct vu_send send = rig_send(&rig, i ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, i, 0, len_bytes);
        rig_post(&rig, &send);
    }
    VU_EQ(ibv_modify_qp(rig.ep.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    VU_EQ(queried(&rig.ep).qp_state, IBV_QPS_SQD);
    VU_EQ(queried(&rig.ep).en_sqd_async_notify, 1);
    vu_barrier(sock); /* there it posts receives */
    VU_CHECK(vu_async_event(rig.dev.ctx, IBV_EVENT_SQ_DRAINED, 20000), "no event");
    VU_EQ(queried(&rig.ep).sq_draining, 0);
    struct ibv_wc wc[8];
    int done = vu_poll(rig.ep.scq, wc, 4, 50); /* those under way, in order */
    for (int i = 0; i < done; i++)
        VU_TRUE(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == (uint64_t)i);
    struct vu_send later = rig_send(&rig, IBV_WR_RDMA_WRITE, 3, 0, len_bytes);
    rig_post(&rig, &later);
    vu_expect_none(rig.ep.scq, 50);
    VU_CHECK(!vu_async_event(rig.dev.ctx, IBV_EVENT_SQ_DRAINED, 20), "a second event");

    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .cur_qp_state = IBV_QPS_SQD,
                                .qp_access_flags = VU_ACCESS_REMOTE,
                                .min_rnr_timer = 3};
    VU_EQ(
        ibv_modify_qp(rig.ep.qp, &attr,
                      IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER),
        0);
    for (unsigned int i = (unsigned int)done; i < 4; i++)
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
    VU_EQ(queried(&rig.ep).min_rnr_timer, 3);
    attr.qp_state = IBV_QPS_SQD;
    VU_EQ(ibv_modify_qp(rig.ep.qp, &attr, IBV_QP_STATE), 0);
    VU_CHECK(!vu_async_event(rig.dev.ctx, IBV_EVENT_SQ_DRAINED, 20), "event without the wish");
    vu_barrier(sock);
    rig_close(&rig);
}

static void drain_b(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    rig_recv(&rig, 1, 0, (uint32_t)param);
    vu_expect(rig.ep.rcq, 1, IBV_WC_SUCCESS);
    rig_bytes(&rig, 0, (uint32_t)param, 0x5a);
    vu_barrier(sock);
    rig_close(&rig);
}

/* In SQD the path, the rights and the retries may change; what belongs to other steps may not. */
static void sqd_attributes_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};
    VU_EQ(ibv_modify_qp(rig.ep.qp, &attr, IBV_QP_STATE), 0);
    attr = queried(&rig.ep);
    attr.timeout = 18;
    attr.retry_cnt = 3;
    attr.rnr_retry = 5;
    attr.max_rd_atomic = 2;
    attr.min_rnr_timer = 7;
    attr.alt_ah_attr = attr.ah_attr;
    attr.alt_port_num = 1;
    attr.alt_timeout = 9;
    const int allowed = IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
                        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    static const int refused[] = {IBV_QP_DEST_QPN,           IBV_QP_SQ_PSN, IBV_QP_RQ_PSN,
                                  IBV_QP_PATH_MTU,           IBV_QP_CAP,    IBV_QP_QKEY,
                                  IBV_QP_EN_SQD_ASYNC_NOTIFY};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        VU_EQ(ibv_modify_qp(rig.ep.qp, &attr, IBV_QP_STATE | allowed | refused[i]), EINVAL);
    VU_TRUE(queried(&rig.ep).timeout != 18);
    attr.path_mig_state = IBV_MIG_ARMED; /* there is no such thing as migration */
    VU_EQ(ibv_modify_qp(rig.ep.qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MIG_STATE), EINVAL);
    VU_EQ(ibv_modify_qp(rig.ep.qp, &attr, IBV_QP_STATE | allowed), 0);
    struct ibv_qp_attr now = queried(&rig.ep);
    VU_EQ(now.qp_state, IBV_QPS_SQD);
    VU_EQ(now.timeout, 18);
    VU_EQ(now.retry_cnt, 3);
    VU_EQ(now.rnr_retry, 5);
    VU_EQ(now.min_rnr_timer, 7);
    VU_EQ(now.alt_port_num, 1);
    VU_EQ(now.alt_timeout, 9);
    VU_EQ(memcmp(&now.alt_ah_attr.grh.dgid, &attr.ah_attr.grh.dgid, 16), 0);
    VU_TRUE(now.max_rd_atomic >= 2);
    attr.qp_state = IBV_QPS_RTS;
    VU_EQ(ibv_modify_qp(rig.ep.qp, &attr, IBV_QP_STATE | IBV_QP_AV), EINVAL);
    VU_EQ(ibv_modify_qp(rig.ep.qp, &attr, IBV_QP_STATE), 0);
    struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 64);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

/* One side sends, the other goes to ERR in the midst of it, without having polled: what the sender
 * was told is delivered has completed its receive, in order, before the others are flushed. */
#define ROUNDS 60
#define STREAM 48u

/* Returns how many of the first completions are successes; all of them must come. */
static uint32_t count_successes(struct ibv_cq *cq, uint32_t all)
{
    uint32_t successes = 0;
    for (uint32_t i = 0; i < all; i++) {
        struct ibv_wc wc;
        VU_EQ(vu_poll(cq, &wc, 1, 20000), 1);
        VU_EQ(wc.wr_id, i);
        if (wc.status == IBV_WC_SUCCESS)
            VU_EQ(successes++, i);
    }
    return successes;
}

static void stream_a(int sock, int param)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct rig rig;
        rig_open(&rig, sock, NULL);
        vu_barrier(sock);
        for (uint32_t i = 0; i < STREAM; i++) {
            struct vu_send send = rig_send(&rig, IBV_WR_SEND, i, 0, (uint32_t)param);
            rig_post(&rig, &send);
        }
        vu_barrier(sock);
        vu_ep_to(&rig.ep, IBV_QPS_ERR); /* what is left need not be tried */
        const uint32_t successes = count_successes(rig.ep.scq, STREAM);
        vu_put(sock, &successes, sizeof(successes));
        rig_close(&rig);
    }
}

static void stream_b(int sock, int param)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct rig rig;
        uint32_t told;
        rig_open(&rig, sock, NULL);
        for (uint32_t i = 0; i < STREAM; i++)
            rig_recv(&rig, i, 0, (uint32_t)param);
        vu_barrier(sock);
        for (volatile int wait = 0; wait < round * 2000; wait++)
            ;
        vu_ep_to(&rig.ep, IBV_QPS_ERR);
        vu_barrier(sock);
        const uint32_t successes = count_successes(rig.ep.rcq, STREAM);
        vu_get(sock, &told, sizeof(told));
        VU_CHECK(told <= successes, "%u were delivered, and %u received", told, successes);
        rig_close(&rig);
    }
}

/* One side is told that all it sent was delivered; the other has not polled, destroys its QP, and
 * looks into the CQ then (libfabric's teardown). With a receive left over, which is not flushed. */
static void told_a(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    for (uint32_t i = 0; i < STREAM; i++) {
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, i, 0, (uint32_t)param);
        rig_post(&rig, &send);
    }
    VU_EQ(count_successes(rig.ep.scq, STREAM), STREAM);
    vu_barrier(sock);
    rig_close(&rig);
}

static void destroy_what_came_to(struct rig *rig, struct vu_ep *ep, int sock)
{
    struct ibv_wc wc[STREAM + 2];
    const uint32_t qpn = ep->qp->qp_num;
    vu_barrier(sock);
    vu_barrier(sock); /* the other side was told */
    VU_EQ(ibv_destroy_qp(ep->qp), 0);
    VU_EQ(ibv_poll_cq(ep->rcq, STREAM + 2, wc), STREAM);
    for (uint32_t i = 0; i < STREAM; i++)
        VU_TRUE(wc[i].wr_id == i && wc[i].status == IBV_WC_SUCCESS && wc[i].qp_num == qpn);
    vu_ep_create(&rig->dev, &(struct vu_ep_attr){.send_cq = ep->scq, .recv_cq = ep->rcq}, ep);
    ep->own_scq = ep->own_rcq = true; /* for rig_close() */
}

static void told_b(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    for (uint32_t i = 0; i <= STREAM; i++)
        rig_recv(&rig, i, 0, (uint32_t)param);
    destroy_what_came_to(&rig, &rig.ep, sock);
    rig_close(&rig);
}

const struct sem_case sem_states[] = {
    {"modify_qp__state_table", table_a, nothing, 0},
    {"modify_qp__sqd_drains_short", drain_a, drain_b, 64},
    {"modify_qp__sqd_drains_long", drain_a, drain_b, RIG_BYTES},
    {"modify_qp__sqd_attributes", sqd_attributes_a, sem_idle, 0},
    {"query_qp__returns_what_was_set", query_a, nothing, 0},
    {"post__in_each_state", posting_a, nothing, 0},
    {"modify_qp__err_flushes_in_order", flush_a, sem_idle, 0},
    {"modify_qp__reset_and_reuse", reuse_a, reuse_b, 0},
    {"destroy_qp__takes_its_completions", destroy_a, sem_two_idle, 0},
    {"modify_qp__err_keeps_what_came_short", stream_a, stream_b, 64},
    {"modify_qp__err_keeps_what_came", stream_a, stream_b, 4000},
    {"modify_qp__err_keeps_what_came_long", stream_a, stream_b, 40000},
    {"destroy_qp__keeps_what_came_short", told_a, told_b, 64},
    {"destroy_qp__keeps_what_came_long", told_a, told_b, 40000},
    {"destroy__busy_objects", busy_a, nothing, 0},
    {0},
};
