/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: what may be asked of a completion queue beside polling and arming it. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "ud_side.h"

#define EVENT_MS 20000
#define PERIOD_US 60000
#define HELD_MS 15
#define TRIES 20

static uint64_t clock_now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A QP of one's own that completes into an extended CQ. */
struct ex_rig {
    struct vu_dev dev;
    struct ibv_cq_ex *ex;
    struct vu_ep ep;
    uint8_t buf[4096];
    struct ibv_mr *mr;
    struct vu_key peer;
};

static void ex_open(struct ex_rig *r, int sock, struct ibv_cq_init_attr_ex *attr)
{
    vu_dev_open(&r->dev);
    r->ex = ibv_create_cq_ex(r->dev.ctx, attr);
    VU_CHECK(r->ex, "ibv_create_cq_ex: %s", strerror(errno));
    struct ibv_cq *cq = ibv_cq_ex_to_cq(r->ex);
    struct vu_ep_attr ep_attr = {.send_cq = cq, .recv_cq = cq};
    vu_ep_create(&r->dev, &ep_attr, &r->ep);
    r->mr = vu_reg(&r->dev, r->buf, sizeof(r->buf), VU_ACCESS_ALL);
    r->peer = vu_trade_keys(sock, r->mr);
    vu_connect(&r->ep, sock, NULL);
}

static void ex_close(struct ex_rig *r)
{
    vu_ep_destroy(&r->ep);
    VU_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(r->ex)), 0);
    VU_EQ(ibv_dereg_mr(r->mr), 0);
    vu_dev_close(&r->dev);
}

static void ex_write(struct ex_rig *r, uint64_t wr_id)
{
    struct vu_send send = {.opcode = IBV_WR_RDMA_WRITE,
                           .wr_id = wr_id,
                           .flags = IBV_SEND_SIGNALED,
                           .addr = r->buf,
                           .len_bytes = 8,
                           .lkey = r->mr->lkey,
                           .remote = r->peer.addr,
                           .rkey = r->peer.rkey};
    VU_EQ(vu_post_send(r->ep.qp, &send), 0);
}

static int ex_start(struct ex_rig *r)
{
    struct ibv_poll_cq_attr attr = {0};
    uint64_t deadline = vu_now_ms() + EVENT_MS;
    int rc;
    while ((rc = ibv_start_poll(r->ex, &attr)) == ENOENT && vu_now_ms() < deadline)
        ;
    return rc;
}

static uint64_t raw_clock(struct ibv_context *ctx)
{
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    VU_EQ(ibv_query_rt_values_ex(ctx, &values), 0);
    VU_EQ(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
    return (uint64_t)values.raw_clock.tv_sec * 1000000000u + (uint64_t)values.raw_clock.tv_nsec;
}

/* Each timestamp lies between the readings of its clock before posting and after polling, and later
 * completions have later ones. */
static void times_a(int sock, int param)
{
    (void)param;
    struct ex_rig r;
    struct ibv_cq_init_attr_ex attr = {.cqe = 64,
                                       .wc_flags = IBV_WC_STANDARD_FLAGS |
                                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
    struct ibv_device_attr_ex device;
    ex_open(&r, sock, &attr);
    VU_EQ(ibv_query_device_ex(r.dev.ctx, NULL, &device), 0);
    VU_TRUE(device.hca_core_clock > 0 && device.completion_timestamp_mask > UINT32_MAX);
    uint64_t latest = raw_clock(r.dev.ctx), latest_wall = clock_now_ns(CLOCK_REALTIME);
    for (unsigned int i = 0; i < 30; i++) {
        ex_write(&r, i);
        if (i % 10 != 9)
            continue;
        if (i == 19)
            VU_EQ(ibv_resize_cq(ibv_cq_ex_to_cq(r.ex), 200), 0);
        int rc = ex_start(&r);
        for (unsigned int k = i - 9; k <= i; k++, rc = ibv_next_poll(r.ex)) {
            while (rc == ENOENT)
                rc = ibv_next_poll(r.ex);
            VU_EQ(rc, 0);
            VU_EQ(r.ex->wr_id, k);
            VU_EQ(r.ex->status, IBV_WC_SUCCESS);
            uint64_t at = ibv_wc_read_completion_ts(r.ex);
            uint64_t wall = ibv_wc_read_completion_wallclock_ns(r.ex);
            VU_CHECK(at >= latest && at <= raw_clock(r.dev.ctx), "%llu after %llu",
                     (unsigned long long)at, (unsigned long long)latest);
            /* read at two moments, between which the wall's clock may be adjusted a little */
            VU_TRUE(wall + 50000000 >= latest_wall);
            VU_TRUE(wall <= clock_now_ns(CLOCK_REALTIME) + 50000000);
            latest = at;
            latest_wall = wall;
        }
        ibv_end_poll(r.ex);
    }
    vu_barrier(sock);
    ex_close(&r);
}

static void ex_idle_b(int sock, int param)
{
    (void)param;
    struct ex_rig r;
    struct ibv_cq_init_attr_ex attr = {.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS};
    ex_open(&r, sock, &attr);
    vu_barrier(sock);
    ex_close(&r);
}

/* Completions that do not fit are lost, and the QP lives on. */
static void overrun_a(int sock, int param)
{
    (void)param;
    struct ex_rig r;
    struct ibv_wc wc[64];
    struct ibv_cq_init_attr_ex attr = {.cqe = 4,
                                       .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
                                       .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
    ex_open(&r, sock, &attr);
    struct ibv_cq *cq = ibv_cq_ex_to_cq(r.ex);
    int room = cq->cqe, total = room + 5;
    VU_TRUE(total <= (int)r.ep.send_wr && room < 64);
    for (int i = 0; i < total; i++)
        ex_write(&r, (uint64_t)i);
    vu_sleep_ms(50);
    int got = vu_poll(cq, wc, room, EVENT_MS);
    VU_EQ(got, room);
    for (int i = 0; i < room; i++) {
        VU_EQ(wc[i].status, IBV_WC_SUCCESS);
        VU_EQ(wc[i].wr_id, i);
    }
    VU_CHECK(!vu_async_event(r.dev.ctx, IBV_EVENT_CQ_ERR, HELD_MS), "event of an ignored overrun");
    VU_EQ(vu_ep_state(&r.ep), IBV_QPS_RTS);
    ex_write(&r, 1000);
    VU_EQ(vu_poll(cq, wc, 1, EVENT_MS), 1);
    while (wc[0].wr_id != 1000)
        VU_EQ(vu_poll(cq, wc, 1, EVENT_MS), 1);
    vu_barrier(sock);
    ex_close(&r);
}

/* With three messages the event comes by the period, with four by the count. */
static void moderate_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    for (;;) {
        int count;
        vu_get(sock, &count, sizeof(count));
        for (int i = 0; i < count; i++) {
            struct vu_send send = rig_send(&rig, IBV_WR_SEND, (uint64_t)i, 0, 8);
            rig_post(&rig, &send);
            vu_expect(rig.ep.scq, (uint64_t)i, IBV_WC_SUCCESS);
        }
        vu_barrier(sock);
        if (!count)
            break;
    }
    rig_close(&rig);
}

/* Returns how long the event of `count` messages took, at most. */
static uint64_t moderated(struct rig *rig, int count)
{
    for (int i = 0; i < count; i++)
        rig_recv(rig, (uint64_t)i, 0, 64);
    VU_EQ(ibv_req_notify_cq(rig->ep.rcq, 0), 0);
    uint64_t before_ms = vu_now_ms();
    vu_put(rig->sock, &count, sizeof(count));
    vu_barrier(rig->sock);
    VU_CHECK(vu_cq_event(rig->ep.channel, EVENT_MS), "no event of %d messages", count);
    uint64_t took_ms = vu_now_ms() - before_ms;
    for (int i = 0; i < count; i++)
        vu_expect(rig->ep.rcq, (uint64_t)i, IBV_WC_SUCCESS);
    return took_ms;
}

static void moderate_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.channel = true}};
    struct ibv_modify_cq_attr moderate = {
        .attr_mask = IBV_CQ_ATTR_MODERATE,
        .moderate = {.cq_count = 4, .cq_period = PERIOD_US},
    };
    rig_open(&rig, sock, &attr);
    VU_EQ(ibv_modify_cq(rig.ep.rcq, &moderate), 0);
    uint64_t took_ms = moderated(&rig, 3);
    VU_CHECK(took_ms + 1 >= PERIOD_US / 1000, "the event came after %llu ms",
             (unsigned long long)took_ms);
    bool by_count = false; /* and not by the period, on a machine that is not too busy to tell */
    for (int i = 0; i < TRIES && !by_count; i++) {
        by_count = moderated(&rig, 4) < PERIOD_US / 1000;
    }
    VU_CHECK(by_count, "four completions waited for the period");

    moderate.moderate.cq_count = 0;
    VU_EQ(ibv_modify_cq(rig.ep.rcq, &moderate), 0);
    by_count = false;
    for (int i = 0; i < TRIES && !by_count; i++) {
        by_count = moderated(&rig, 1) < PERIOD_US / 1000;
    }
    VU_CHECK(by_count, "moderation goes on after it was switched off");
    moderate.attr_mask = 1 << 7;
    VU_EQ(ibv_modify_cq(rig.ep.rcq, &moderate), EOPNOTSUPP);
    int none = 0;
    vu_put(sock, &none, sizeof(none));
    vu_barrier(sock);
    rig_close(&rig);
}

struct resizer {
    struct ibv_cq *cq;
    atomic_bool stop;
    atomic_int grown;
};

static void *resize_often(void *arg)
{
    struct resizer *resizer = arg;
    struct vu_random random = {5};
    while (!atomic_load(&resizer->stop)) {
        int cqe = 64 + (int)vu_random_below(&random, 2000);
        int rc = ibv_resize_cq(resizer->cq, cqe);
        if (rc)
            VU_EQ(rc, EINVAL);
        else
            resizer->grown++;
        (void)ibv_resize_cq(resizer->cq, 1); /* at times too few for what is queued */
    }
    return NULL;
}

/* While requests complete and are polled, another thread resizes the CQ. */
static void resize_busy_a(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.ep = {.cqe = 64, .send_wr = 16}};
    rig_open(&rig, sock, &attr);
    VU_EQ(ibv_resize_cq(rig.ep.scq, 0), EINVAL);
    VU_EQ(ibv_resize_cq(rig.ep.scq, rig.dev.attr.max_cqe + 1), EINVAL);
    struct resizer resizer = {.cq = rig.ep.scq};
    pthread_t thread;
    VU_EQ(pthread_create(&thread, NULL, resize_often, &resizer), 0);
    uint64_t posted = 0, polled = 0;
    while (polled < (uint64_t)param || !resizer.grown) {
        while (posted - polled < 16) {
            struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, posted++, 0, 8);
            rig_post(&rig, &send);
        }
        struct ibv_wc wc[5];
        int n = vu_poll(rig.ep.scq, wc, 5, EVENT_MS);
        VU_EQ(n, 5);
        for (int i = 0; i < n; i++, polled++) {
            VU_EQ(wc[i].wr_id, polled);
            VU_EQ(wc[i].status, IBV_WC_SUCCESS);
        }
    }
    atomic_store(&resizer.stop, true);
    pthread_join(thread, NULL);
    for (; polled < posted; polled++)
        vu_expect(rig.ep.scq, polled, IBV_WC_SUCCESS);
    VU_TRUE(resizer.grown > 0);
    vu_barrier(sock);
    rig_close(&rig);
}

static void idle_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    rig_close(&rig);
}

/* All fields that a datagram's completion has, read one by one: ibv_create_cq_ex(3). */
#define WIDE                                                                \
    (IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | \
     IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL |      \
     IBV_WC_EX_WITH_DLID_PATH_BITS)

static void wide_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    struct ud_send send = {.len_bytes = 100, .imm = 0x1234567};
    vu_get(sock, &send.qpn, sizeof(send.qpn));
    ud_send(&side, &send);
    vu_barrier(sock);
    ud_close(&side);
}

static void wide_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    struct ibv_cq_init_attr_ex attr = {.cqe = 16, .wc_flags = WIDE};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(side.dev.ctx, &attr);
    VU_TRUE(cq);
    struct ibv_qp_init_attr init = {
        .send_cq = side.scq,
        .recv_cq = ibv_cq_ex_to_cq(cq),
        .qp_type = IBV_QPT_UD,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(side.dev.pd, &init);
    VU_TRUE(qp);
    ud_to(qp, IBV_QPS_RTS, UD_QKEY);
    ud_recv(&side, qp, 77, UD_SLOT);
    vu_put(sock, &qp->qp_num, sizeof(qp->qp_num));
    struct ibv_poll_cq_attr poll = {0};
    uint64_t start_ms = vu_now_ms();
    int rc;
    while ((rc = ibv_start_poll(cq, &poll)) == ENOENT && vu_now_ms() - start_ms < 20000)
        continue;
    VU_EQ(rc, 0);
    VU_EQ(cq->wr_id, 77);
    VU_EQ(cq->status, IBV_WC_SUCCESS);
    VU_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
    VU_EQ(ibv_wc_read_byte_len(cq), UD_GRH + 100);
    VU_EQ(be32toh(ibv_wc_read_imm_data(cq)), 0x1234567);
    VU_EQ(ibv_wc_read_qp_num(cq), qp->qp_num);
    VU_EQ(ibv_wc_read_src_qp(cq), side.peer_qpn);
    VU_EQ(ibv_wc_read_wc_flags(cq), (unsigned int)(IBV_WC_GRH | IBV_WC_WITH_IMM));
    VU_EQ(ibv_wc_read_slid(cq), 0);
    VU_TRUE(ibv_wc_read_sl(cq) < 16); /* the kind of packet is there: device/queue/ah.h */
    VU_EQ(ibv_wc_read_dlid_path_bits(cq), 0);
    VU_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    vu_barrier(sock);
    VU_EQ(ibv_destroy_qp(qp), 0);
    VU_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    ud_close(&side);
}

const struct sem_case sem_cqs[] = {
    {"cq_ex__fields_of_a_datagram", wide_a, wide_b, 0},
    {"cq_ex__timestamps", times_a, ex_idle_b, 0},
    {"cq_ex__ignored_overrun", overrun_a, ex_idle_b, 0},
    {"modify_cq__moderation", moderate_a, moderate_b, 0},
    {"resize_cq__while_busy", resize_busy_a, idle_b, 20000},
    {0},
};
