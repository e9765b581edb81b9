/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: rate limits of queue pairs, ibv_modify_qp_rate_limit(3): what is sent takes its time, on
 * whichever rung. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ud_side.h"

#define RATE_KBPS 16000u
#define BURST 8192u
#define DEFAULT_BURST 65536u
#define TOTAL (200000u + BURST)
#define FILL 0x5c
#define GENEROUS_MS 20000

enum how {
    LONG_WRITE,
    SHORT_WRITES,
    LONG_SEND,
    SENDS,
    BY_MODIFY, /* a long WRITE, with the device's own burst */
    ASLEEP,    /* a long WRITE that nobody polls for */
    SRQ,       /* a long SEND to a shared queue */
    HOW_MASK = 15,
    OF_UC = 16,
};

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint32_t piece_of(enum how how)
{
    return how == SHORT_WRITES ? 64 : how == SENDS ? 1000 : TOTAL;
}

static void limit(struct ibv_qp *qp, uint32_t rate_kbps, uint32_t burst_bytes)
{
    struct ibv_qp_rate_limit_attr rate = {.rate_limit = rate_kbps, .max_burst_sz = burst_bytes};
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    VU_EQ(ibv_modify_qp_rate_limit(qp, &rate), 0);
    VU_EQ(ibv_query_qp(qp, &attr, IBV_QP_RATE_LIMIT, &init), 0);
    VU_EQ(attr.rate_limit, rate_kbps);
}

/* No more than the burst at once, the rest at the rate. */
static void took(uint64_t start_us, uint64_t bytes, uint32_t burst_bytes)
{
    uint64_t us = now_us() - start_us, least_us = (bytes - burst_bytes) * 8000 / RATE_KBPS;
    VU_CHECK(us >= least_us, "%llu bytes took %llu us, not %llu", (unsigned long long)bytes,
             (unsigned long long)us, (unsigned long long)least_us);
}

/* Moves all of it; the completions are waited for by polling, or asleep. */
static uint64_t move(struct rig *rig, enum how how)
{
    bool sends = how == LONG_SEND || how == SENDS || how == SRQ;
    uint32_t piece = piece_of(how), at = 0;
    struct ibv_wc wc;
    for (uint64_t i = 0; at + piece <= TOTAL; i++, at += piece) {
        struct vu_send send = rig_send(rig, sends ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, i, at, piece);
        VU_EQ(ibv_req_notify_cq(rig->ep.scq, 0), 0);
        rig_post(rig, &send);
        if (how == ASLEEP)
            VU_TRUE(vu_cq_event(rig->ep.channel, GENEROUS_MS));
        VU_EQ(vu_poll(rig->ep.scq, &wc, 1, GENEROUS_MS), 1);
        VU_EQ(wc.status, IBV_WC_SUCCESS);
    }
    return at;
}

static void open_side(struct rig *rig, int sock, int param)
{
    struct rig_attr attr = {.fill = FILL,
                            .ep = {.type = param & OF_UC ? IBV_QPT_UC : IBV_QPT_RC,
                                   .recv_wr = 512,
                                   .channel = (param & HOW_MASK) == ASLEEP}};
    rig_open(rig, sock, &attr);
}

static void paced_a(int sock, int param)
{
    enum how how = (enum how)(param & HOW_MASK);
    struct rig rig;
    open_side(&rig, sock, param);
    uint32_t burst = how == BY_MODIFY ? DEFAULT_BURST : BURST;
    vu_barrier(sock);
    uint64_t start_us = now_us();
    if (how == BY_MODIFY) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .rate_limit = RATE_KBPS};
        VU_EQ(ibv_modify_qp(rig.ep.qp, &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT), 0);
    } else {
        limit(rig.ep.qp, RATE_KBPS, burst);
    }
    took(start_us, move(&rig, how), burst);
    vu_barrier(sock);
    limit(rig.ep.qp, 0, 0); /* and no longer */
    struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, TOTAL);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void paced_b(int sock, int param)
{
    enum how how = (enum how)(param & HOW_MASK);
    struct rig rig;
    open_side(&rig, sock, param);
    uint32_t piece = piece_of(how), count = 0;
    memset(rig.buf, 0, RIG_BYTES);
    for (uint32_t at = 0; (how == SENDS || how == LONG_SEND) && at + piece <= TOTAL; at += piece)
        rig_recv(&rig, count++, at, piece);
    vu_barrier(sock);
    struct ibv_wc wc;
    for (uint32_t i = 0; i < count; i++) {
        VU_EQ(vu_poll(rig.ep.rcq, &wc, 1, GENEROUS_MS), 1);
        VU_EQ(wc.status, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    /* Completions of UC tell that a message was sent, not that it arrived. */
    rig_written(&rig, 0, TOTAL - TOTAL % piece, FILL);
    vu_barrier(sock);
    rig_close(&rig);
}

/* The receiver's side with a shared queue, from which only it may take receives. */
static void paced_srq_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
    rig_prepare(&rig, sock, &(struct rig_attr){.ep = {.type = IBV_QPT_RC}});
    vu_ep_destroy(&rig.ep);
    struct ibv_srq *srq = ibv_create_srq(rig.dev.pd, &init);
    VU_TRUE(srq);
    struct vu_ep_attr attr = {.srq = srq};
    vu_ep_create(&rig.dev, &attr, &rig.ep);
    rig_connect(&rig, NULL);
    VU_EQ(vu_post_srq(srq, 1, rig.buf, TOTAL, rig.mr->lkey), 0);
    vu_barrier(sock);
    struct ibv_wc wc;
    VU_EQ(vu_poll(rig.ep.rcq, &wc, 1, GENEROUS_MS), 1);
    VU_EQ(wc.status, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_bytes(&rig, 0, TOTAL, FILL);
    vu_barrier(sock);
    vu_ep_destroy(&rig.ep);
    VU_EQ(ibv_destroy_srq(srq), 0);
    VU_EQ(ibv_dereg_mr(rig.mr), 0);
    vu_dev_close(&rig.dev);
    free(rig.buf);
}

/* The receiver discards pages of its memory while a message is on its way to them: from there on
 * they may be reached in another way. */
#define DISCARDED_AT (48u * 4096) /* what lies from there to the end of the region */

static void discard_a(int sock, int param)
{
    const enum ibv_wr_opcode opcode = (enum ibv_wr_opcode)param;
    struct rig rig;
    rig_open(&rig, sock, &(struct rig_attr){.fill = FILL});
    vu_barrier(sock);
    limit(rig.ep.qp, RATE_KBPS, BURST);
    struct vu_send send = rig_send(&rig, opcode, 1, 0, TOTAL);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock); /* it looks at that */
    vu_barrier(sock);
    limit(rig.ep.qp, 0, 0);
    send = rig_send(&rig, IBV_WR_RDMA_WRITE, 2, 0, TOTAL);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void discard_b(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, &(struct rig_attr){0});
    memset(rig.buf, 0, RIG_BYTES);
    if (param == IBV_WR_SEND)
        rig_recv(&rig, 1, 0, TOTAL);
    vu_barrier(sock);
    const volatile uint8_t *first = rig.buf;
    for (int ms = 0; *first != FILL && ms < GENEROUS_MS; ms++)
        vu_sleep_ms(1);
    VU_EQ(madvise(rig.buf + DISCARDED_AT, RIG_BYTES - DISCARDED_AT, MADV_DONTNEED), 0);
    if (param == IBV_WR_SEND)
        vu_expect(rig.ep.rcq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_bytes(&rig, 0, DISCARDED_AT, FILL); /* whatever came before the rest was discarded */
    memset(rig.buf, 0, RIG_BYTES);
    vu_barrier(sock);
    vu_barrier(sock);
    rig_bytes(&rig, 0, TOTAL, FILL);
    rig_close(&rig);
}

static void datagrams_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    struct ibv_wc wc;
    uint32_t count = TOTAL / 1000;
    vu_barrier(sock);
    uint64_t start_us = now_us();
    limit(side.qp, RATE_KBPS, BURST);
    for (uint64_t i = 0; i < count; i++) {
        struct ud_send send = {.wr_id = i, .len_bytes = 1000};
        VU_EQ(ud_post(&side, &send), 0);
        VU_EQ(vu_poll(side.scq, &wc, 1, GENEROUS_MS), 1);
        VU_EQ(wc.status, IBV_WC_SUCCESS);
    }
    took(start_us, count * 1000, BURST);
    vu_barrier(sock);
    ud_close(&side);
}

static void datagrams_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    for (uint64_t i = 0; i < 100; i++)
        ud_recv(&side, side.qp, i, UD_SLOT);
    vu_barrier(sock);
    for (uint64_t i = 0; i < 100; i++) {
        struct ibv_wc wc;
        VU_EQ(vu_poll(side.rcq, &wc, 1, GENEROUS_MS), 1);
        VU_EQ(wc.status, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    ud_close(&side);
}

static void rules(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct ibv_device_attr_ex attr;
    rig_prepare(&rig, sock, &(struct rig_attr){0});
    VU_EQ(ibv_query_device_ex(rig.dev.ctx, NULL, &attr), 0);
    const struct ibv_packet_pacing_caps *caps = &attr.packet_pacing_caps;
    VU_TRUE(caps->qp_rate_limit_min > 0 && caps->qp_rate_limit_min < caps->qp_rate_limit_max);
    VU_EQ(caps->supported_qpts & (1 << IBV_QPT_RC | 1 << IBV_QPT_UC | 1 << IBV_QPT_UD),
          1 << IBV_QPT_RC | 1 << IBV_QPT_UC | 1 << IBV_QPT_UD);

    struct ibv_qp *qp = rig.ep.qp;
    struct ibv_qp_rate_limit_attr rate = {.rate_limit = caps->qp_rate_limit_max};
    VU_EQ(ibv_modify_qp_rate_limit(qp, &rate), EINVAL); /* RESET */
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .rate_limit = 1000};
    VU_EQ(ibv_modify_qp(qp, &init,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS |
                            IBV_QP_RATE_LIMIT),
          EINVAL);
    rig_connect(&rig, NULL);
    VU_EQ(ibv_modify_qp_rate_limit(qp, &rate), 0);
    rate.max_burst_sz = 1; /* less than a packet is a packet */
    rate.typical_pkt_sz = 1024;
    VU_EQ(ibv_modify_qp_rate_limit(qp, &rate), 0);
    rate.rate_limit++;
    VU_EQ(ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
    rate.rate_limit = caps->qp_rate_limit_min - 1;
    VU_EQ(ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
    rate.rate_limit = 0; /* no limit has a burst */
    VU_EQ(ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
    rate = (struct ibv_qp_rate_limit_attr){.rate_limit = 0, .comp_mask = 1};
    VU_EQ(ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
    struct ibv_qp_attr set = {.rate_limit = caps->qp_rate_limit_max + 1};
    VU_EQ(ibv_modify_qp(qp, &set, IBV_QP_RATE_LIMIT), EINVAL);
    struct ibv_qp_attr is;
    struct ibv_qp_init_attr ignored;
    VU_EQ(ibv_query_qp(qp, &is, IBV_QP_RATE_LIMIT, &ignored), 0);
    VU_EQ(is.rate_limit, caps->qp_rate_limit_max);
    struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 4096);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    vu_ep_to(&rig.ep, IBV_QPS_RESET);
    VU_EQ(ibv_query_qp(qp, &is, IBV_QP_RATE_LIMIT, &ignored), 0);
    VU_EQ(is.rate_limit, 0);
    rig_close(&rig);
}

const struct sem_case sem_pacing[] = {
    {"pacing__long_write", paced_a, paced_b, LONG_WRITE},
    {"pacing__short_writes", paced_a, paced_b, SHORT_WRITES},
    {"pacing__long_send", paced_a, paced_b, LONG_SEND},
    {"pacing__sends", paced_a, paced_b, SENDS},
    {"pacing__set_by_modify", paced_a, paced_b, BY_MODIFY},
    {"pacing__nobody_polls", paced_a, paced_b, ASLEEP},
    {"pacing__shared_receives", paced_a, paced_srq_b, SRQ},
    {"pacing__uc_long_write", paced_a, paced_b, LONG_WRITE | OF_UC},
    {"pacing__uc_sends", paced_a, paced_b, SENDS | OF_UC},
    {"pacing__discarded_amid_write", discard_a, discard_b, IBV_WR_RDMA_WRITE},
    {"pacing__discarded_amid_send", discard_a, discard_b, IBV_WR_SEND},
    {"pacing__datagrams", datagrams_a, datagrams_b, 0},
    {"pacing__rules", rules, rules, 0},
    {0},
};
