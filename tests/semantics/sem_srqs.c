/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: shared receive queues. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sem.h"

#define QPS 3
#define EVENT_MS 20000

/* A device, an SRQ, and QPs on it that share one receive CQ. Side A has the same QPs without the
 * SRQ. */
struct srq_rig {
    struct rig rig; /* rig.ep unused but for its CQs */
    struct ibv_srq *srq;
    struct vu_ep eps[QPS];
};

static void open_srq(struct srq_rig *s, int sock, bool with_srq, uint32_t srq_wr)
{
    struct rig_attr attr = {.fill = with_srq ? 0xb5 : 0};
    rig_open(&s->rig, sock, &attr);
    s->srq = NULL;
    if (with_srq) {
        struct ibv_srq_init_attr init = {.srq_context = s,
                                         .attr = {.max_wr = srq_wr, .max_sge = 2}};
        s->srq = ibv_create_srq(s->rig.dev.pd, &init);
        VU_CHECK(s->srq, "ibv_create_srq: %s", strerror(errno));
        VU_TRUE(init.attr.max_wr >= srq_wr && init.attr.max_sge >= 2);
    }
    struct vu_ep_attr ep_attr = {.srq = s->srq, .send_cq = s->rig.ep.scq, .recv_cq = s->rig.ep.rcq};
    for (int i = 0; i < QPS; i++) {
        vu_ep_create(&s->rig.dev, &ep_attr, &s->eps[i]);
        vu_connect(&s->eps[i], sock, NULL);
    }
}

static void close_srq(struct srq_rig *s)
{
    for (int i = 0; i < QPS; i++)
        vu_ep_destroy(&s->eps[i]);
    if (s->srq)
        VU_EQ(ibv_destroy_srq(s->srq), 0);
    rig_close(&s->rig);
}

static void post(struct srq_rig *s, uint64_t wr_id, uint32_t len_bytes)
{
    VU_EQ(vu_post_srq(s->srq, wr_id, s->rig.buf + wr_id * 4096, len_bytes, s->rig.mr->lkey), 0);
}

static void send_on(struct srq_rig *s, int qp, uint64_t wr_id, uint32_t len_bytes)
{
    struct vu_send send = rig_send(&s->rig, IBV_WR_SEND, wr_id, (uint32_t)wr_id * 4096, len_bytes);
    VU_EQ(vu_post_send(s->eps[qp].qp, &send), 0);
}

/* Receives go to whichever QP gets a message, in the order of posting; sizes through and past what
 * a ring record holds. */
static void shared_a(int sock, int param)
{
    struct srq_rig s;
    open_srq(&s, sock, false, 0);
    vu_barrier(sock);
    for (unsigned int i = 0; i < 12; i++) {
        memset(s.rig.buf + i * 4096, 0x10 + (int)i, 4096);
        send_on(&s, (int)i % QPS, i, (uint32_t)param);
        vu_expect(s.rig.ep.scq, i, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    vu_barrier(sock);
    close_srq(&s);
}

static void shared_b(int sock, int param)
{
    struct srq_rig s;
    open_srq(&s, sock, true, 32);
    for (unsigned int i = 0; i < 12; i++)
        post(&s, i, 4096);
    vu_barrier(sock);
    for (unsigned int i = 0; i < 12; i++) {
        struct ibv_wc wc = vu_expect(s.rig.ep.rcq, i, IBV_WC_SUCCESS);
        VU_EQ(wc.qp_num, s.eps[i % QPS].qp->qp_num);
        VU_EQ(wc.byte_len, param);
        rig_bytes(&s.rig, i * 4096, (uint32_t)param, (uint8_t)(0x10 + i));
        rig_bytes(&s.rig, i * 4096 + (uint32_t)param, 4096 - (uint32_t)param, 0xb5);
    }
    vu_barrier(sock);
    VU_EQ(ibv_destroy_srq(s.srq), EBUSY);
    vu_barrier(sock);
    close_srq(&s);
}

static void empty_a(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    open_srq(&s, sock, false, 0);
    for (unsigned int i = 0; i < QPS; i++)
        send_on(&s, (int)i, i, 600);
    vu_expect_none(s.rig.ep.scq, 100);
    vu_barrier(sock);
    struct ibv_wc wc[QPS];
    VU_EQ(vu_poll(s.rig.ep.scq, wc, QPS, 20000), QPS);
    for (int i = 0; i < QPS; i++)
        VU_EQ(wc[i].status, IBV_WC_SUCCESS);
    vu_barrier(sock);
    close_srq(&s);
}

static void empty_b(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    open_srq(&s, sock, true, 32);
    vu_barrier(sock);
    for (unsigned int i = 0; i < QPS; i++)
        post(&s, i, 4096);
    unsigned int seen = 0; /* each once: between queue pairs completions have no order */
    for (unsigned int i = 0; i < QPS; i++) {
        struct ibv_wc wc;
        VU_EQ(vu_poll(s.rig.ep.rcq, &wc, 1, 20000), 1);
        VU_EQ(wc.status, IBV_WC_SUCCESS);
        VU_EQ(wc.byte_len, 600);
        VU_CHECK(wc.wr_id < QPS && !(seen & 1u << wc.wr_id), "receive %llu again",
                 (unsigned long long)wc.wr_id);
        seen |= 1u << wc.wr_id;
    }
    vu_barrier(sock);
    close_srq(&s);
}

/* The limit fires once when fewer are left, then is disarmed. IBTA Vol1 10.2.9.2 */
static void limit_a(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    open_srq(&s, sock, false, 0);
    for (int step = 0; step < 3; step++) {
        vu_barrier(sock);
        for (unsigned int i = 0; i < 2; i++) {
            send_on(&s, 0, i, 64);
            vu_expect(s.rig.ep.scq, i, IBV_WC_SUCCESS);
        }
        vu_barrier(sock);
    }
    close_srq(&s);
}

static void limit_b(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    struct ibv_wc wc[2];
    open_srq(&s, sock, true, 32);
    for (unsigned int i = 0; i < 10; i++)
        post(&s, i, 64);
    struct ibv_srq_attr attr = {.srq_limit = 8};
    VU_EQ(ibv_modify_srq(s.srq, &attr, IBV_SRQ_LIMIT), 0);
    VU_EQ(ibv_query_srq(s.srq, &attr), 0);
    VU_EQ(attr.srq_limit, 8);

    vu_barrier(sock); /* 10 -> 8: not below the limit */
    VU_EQ(vu_poll(s.rig.ep.rcq, wc, 2, 20000), 2);
    vu_barrier(sock);
    VU_CHECK(!vu_async_event(s.rig.dev.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, 50), "event at the limit");

    vu_barrier(sock); /* 8 -> 6 */
    VU_EQ(vu_poll(s.rig.ep.rcq, wc, 2, 20000), 2);
    vu_barrier(sock);
    VU_CHECK(vu_async_event(s.rig.dev.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, EVENT_MS),
             "no event below the limit");
    VU_EQ(ibv_query_srq(s.srq, &attr), 0);
    VU_EQ(attr.srq_limit, 0);

    vu_barrier(sock); /* 6 -> 4 */
    VU_EQ(vu_poll(s.rig.ep.rcq, wc, 2, 20000), 2);
    vu_barrier(sock);
    VU_CHECK(!vu_async_event(s.rig.dev.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, 50), "a second event");
    close_srq(&s);
}

static void peer_a(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    open_srq(&s, sock, false, 0);
    vu_barrier(sock);
    close_srq(&s);
}

/* A QP in ERR leaves the SRQ's receives alone and says when it will take no more. */
static void last_wqe_b(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    open_srq(&s, sock, true, 32);
    for (unsigned int i = 0; i < 4; i++)
        post(&s, i, 64);
    vu_ep_to(&s.eps[0], IBV_QPS_ERR);
    VU_CHECK(vu_async_event(s.rig.dev.ctx, IBV_EVENT_QP_LAST_WQE_REACHED, EVENT_MS), "no event");
    vu_expect_none(s.rig.ep.rcq, 20);
    vu_barrier(sock);
    close_srq(&s);
}

static void full_b(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    open_srq(&s, sock, true, 8);
    struct ibv_srq_attr attr;
    VU_EQ(ibv_query_srq(s.srq, &attr), 0);
    for (uint32_t i = 0; i < attr.max_wr; i++)
        VU_EQ(vu_post_srq(s.srq, i, s.rig.buf, 64, s.rig.mr->lkey), 0);
    VU_EQ(vu_post_srq(s.srq, 99, s.rig.buf, 64, s.rig.mr->lkey), ENOMEM);
    vu_barrier(sock);
    close_srq(&s);
}

/* A message too long for the receive it takes kills its own QP only. */
static void too_small_a(int sock, int param)
{
    struct srq_rig s;
    open_srq(&s, sock, false, 0);
    vu_barrier(sock);
    send_on(&s, 0, 1, (uint32_t)param);
    vu_expect(s.rig.ep.scq, 1, IBV_WC_REM_INV_REQ_ERR);
    send_on(&s, 1, 2, 512);
    vu_expect(s.rig.ep.scq, 2, IBV_WC_SUCCESS);
    vu_barrier(sock);
    close_srq(&s);
}

static void too_small_b(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    open_srq(&s, sock, true, 8);
    post(&s, 1, 64);
    post(&s, 2, 512);
    vu_barrier(sock);
    struct ibv_wc wc = vu_expect(s.rig.ep.rcq, 1, IBV_WC_LOC_LEN_ERR);
    VU_EQ(wc.qp_num, s.eps[0].qp->qp_num);
    vu_expect(s.rig.ep.rcq, 2, IBV_WC_SUCCESS);
    VU_EQ(vu_ep_state(&s.eps[0]), IBV_QPS_ERR);
    VU_EQ(vu_ep_state(&s.eps[1]), IBV_QPS_RTS);
    rig_bytes(&s.rig, 4096 + 64, 4096 - 64, 0xb5);
    vu_barrier(sock);
    close_srq(&s);
}

/* A message that the target has, but no receive for, is under way: SQD waits for it. */
static void draining_a(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
    struct ibv_qp_init_attr init;
    open_srq(&s, sock, false, 0);
    send_on(&s, 0, 0, 64);
    vu_expect_none(s.rig.ep.scq, 50);
    VU_EQ(ibv_modify_qp(s.eps[0].qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    send_on(&s, 0, 1, 64);
    VU_EQ(ibv_query_qp(s.eps[0].qp, &attr, IBV_QP_STATE, &init), 0);
    VU_EQ(attr.sq_draining, 1);
    VU_CHECK(!vu_async_event(s.rig.dev.ctx, IBV_EVENT_SQ_DRAINED, 50), "event while draining");
    vu_barrier(sock);
    VU_CHECK(vu_async_event(s.rig.dev.ctx, IBV_EVENT_SQ_DRAINED, EVENT_MS), "no event");
    vu_expect(s.rig.ep.scq, 0, IBV_WC_SUCCESS);
    VU_EQ(ibv_query_qp(s.eps[0].qp, &attr, IBV_QP_STATE, &init), 0);
    VU_EQ(attr.sq_draining, 0);
    vu_expect_none(s.rig.ep.scq, 50);
    attr.qp_state = IBV_QPS_RTS;
    VU_EQ(ibv_modify_qp(s.eps[0].qp, &attr, IBV_QP_STATE), 0);
    vu_expect(s.rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    close_srq(&s);
}

static void draining_b(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    open_srq(&s, sock, true, 32);
    vu_barrier(sock);
    post(&s, 0, 64);
    post(&s, 1, 64);
    vu_expect(s.rig.ep.rcq, 0, IBV_WC_SUCCESS);
    vu_expect(s.rig.ep.rcq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    close_srq(&s);
}

/* As many receives as it is resized to, those posted before among them, and no fewer than are
 * posted. */
static void resize_a(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    open_srq(&s, sock, false, 0);
    vu_barrier(sock);
    for (unsigned int i = 0; i < 20; i++) {
        memset(s.rig.buf + i * 4096, 0x10 + (int)i, 64);
        send_on(&s, (int)i % QPS, i, 64);
        vu_expect(s.rig.ep.scq, i, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    close_srq(&s);
}

static void resize_b(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    open_srq(&s, sock, true, 8);
    for (unsigned int i = 0; i < 8; i++)
        post(&s, i, 64);
    struct ibv_srq_attr attr = {.max_wr = 40}, now;
    VU_TRUE(s.rig.dev.attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
    VU_EQ(ibv_modify_srq(s.srq, &attr, IBV_SRQ_MAX_WR), 0);
    VU_EQ(ibv_query_srq(s.srq, &now), 0);
    VU_TRUE(now.max_wr >= 40 && now.max_sge >= 2);
    for (unsigned int i = 8; i < 20; i++)
        post(&s, i, 64);
    attr.max_wr = 4;
    VU_EQ(ibv_modify_srq(s.srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
    attr.max_wr = (uint32_t)s.rig.dev.attr.max_srq_wr + 1;
    VU_EQ(ibv_modify_srq(s.srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
    attr.srq_limit = now.max_wr + 1;
    VU_EQ(ibv_modify_srq(s.srq, &attr, IBV_SRQ_LIMIT), EINVAL);
    VU_EQ(ibv_modify_srq(s.srq, &attr, 1 << 5), EINVAL);
    vu_barrier(sock);
    for (unsigned int i = 0; i < 20; i++) {
        vu_expect(s.rig.ep.rcq, i, IBV_WC_SUCCESS);
        rig_bytes(&s.rig, i * 4096, 64, (uint8_t)(0x10 + i));
    }
    vu_barrier(sock);
    close_srq(&s);
}

/* SENDs to a shared queue among WRITEs and READs, many on their way, more than there are receives:
 * completions in order, each message in its turn, and a WRITE seen before the message behind it. */
#define MIXED 1200u
#define MIXED_AT 32768u /* where WRITEs go */

static struct vu_send mixed_request(struct srq_rig *s, uint32_t i)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
                                                 IBV_WR_SEND, IBV_WR_RDMA_WRITE,
                                                 IBV_WR_SEND, IBV_WR_RDMA_READ};
    const enum ibv_wr_opcode opcode = opcodes[i % 6];
    uint32_t *local = (uint32_t *)(s->rig.buf + i % 32 * 64);
    struct vu_send send = rig_send(&s->rig, opcode, i, i % 32 * 64, i % 5 ? 8 : 60);
    send.imm = i;
    if (opcode == IBV_WR_RDMA_READ) { /* of what was written two before, and nobody waits for */
        send.addr = s->rig.buf + 65536 + i * 4;
        send.len_bytes = 4;
    } else {
        local[0] = i;
        local[1] = ~i;
    }
    if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_READ)
        send.remote = s->rig.peer.addr + MIXED_AT;
    if (i % 6 == 4)
        send.flags |= IBV_SEND_FENCE;
    return send;
}

static void mixed_a(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    open_srq(&s, sock, false, 0);
    vu_barrier(sock);
    uint32_t posted = 0;
    for (uint32_t i = 0; i < MIXED; i++) {
        for (; posted < MIXED && posted - i < 32; posted++) {
            struct vu_send send = mixed_request(&s, posted);
            VU_EQ(vu_post_send(s.eps[0].qp, &send), 0);
        }
        vu_expect(s.rig.ep.scq, i, IBV_WC_SUCCESS);
        if (i % 6 == 5)
            VU_EQ(*(uint32_t *)(s.rig.buf + 65536 + i * 4), i - 2);
    }
    vu_barrier(sock);
    close_srq(&s);
}

static void mixed_b(int sock, int param)
{
    (void)param;
    struct srq_rig s;
    open_srq(&s, sock, true, 16);
    vu_barrier(sock);
    uint32_t posted = 0, messages = MIXED / 6 * 4;
    for (uint32_t n = 0; n < messages; n++) {
        static const uint32_t in_six[] = {0, 1, 2, 4};
        const uint32_t i = n / 4 * 6 + in_six[n % 4];
        for (; posted < messages && posted - n < 5; posted++)
            VU_EQ(vu_post_srq(s.srq, posted, s.rig.buf + posted % 8 * 64, 64, s.rig.mr->lkey), 0);
        const struct ibv_wc wc = vu_expect(s.rig.ep.rcq, n, IBV_WC_SUCCESS);
        const uint32_t *at = (const uint32_t *)(s.rig.buf + n % 8 * 64);
        VU_EQ(wc.byte_len, i % 5 ? 8 : 60);
        VU_EQ(at[0], i);
        VU_EQ(at[1], ~i);
        if (i % 6 == 1)
            VU_EQ(ntohl(wc.imm_data), i);
        if (i % 6 == 4)
            VU_TRUE(*(uint32_t *)(s.rig.buf + MIXED_AT) >= i - 1);
    }
    vu_barrier(sock);
    close_srq(&s);
}

/* Many short messages that follow each other. The receive of one of them is out of the ordinary: in
 * two pieces, too short, without a valid key, or it goes below the limit. */
enum { RUN_PLAIN, RUN_PIECES, RUN_SHORT, RUN_BAD_KEY, RUN_LIMIT };
#define RUN 30u
#define RUN_ODD 20u
#define RUN_BYTES 64u
#define RUN_PIECE 24u    /* the first one; */
#define RUN_SECOND 2048u /* and where the second one begins */

static bool ends_run(int param)
{
    return param == RUN_SHORT || param == RUN_BAD_KEY;
}

static void run_a(int sock, int param)
{
    struct srq_rig s;
    open_srq(&s, sock, false, 0);
    vu_barrier(sock);
    for (uint32_t i = 0; i < RUN; i++) {
        struct vu_send send = rig_send(&s.rig, i % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, i,
                                       i * 4096, RUN_BYTES - i);
        memset(s.rig.buf + i * 4096, 0x10 + (int)i, RUN_BYTES);
        send.imm = i;
        VU_EQ(vu_post_send(s.eps[0].qp, &send), 0);
    }
    vu_barrier(sock);
    const enum ibv_wc_status refused =
        param == RUN_SHORT ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR;
    for (uint32_t i = 0; i < RUN; i++)
        vu_expect(s.rig.ep.scq, i,
                  !ends_run(param) || i < RUN_ODD ? IBV_WC_SUCCESS
                  : i == RUN_ODD                  ? refused
                                                  : IBV_WC_WR_FLUSH_ERR);
    vu_barrier(sock);
    if (ends_run(param)) { /* what was not taken is there for others */
        send_on(&s, 1, RUN_ODD + 1, RUN_BYTES);
        vu_expect(s.rig.ep.scq, RUN_ODD + 1, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    close_srq(&s);
}

static void post_odd(struct srq_rig *s, int param)
{
    uint8_t *at = s->rig.buf + RUN_ODD * 4096;
    const uint32_t lkey = s->rig.mr->lkey;
    struct ibv_sge pieces[] = {{(uintptr_t)at, RUN_PIECE, lkey},
                               {(uintptr_t)at + RUN_SECOND, RUN_BYTES, lkey}};
    struct ibv_recv_wr *bad, wr = {.wr_id = RUN_ODD, .sg_list = pieces, .num_sge = 2};
    if (param == RUN_PIECES)
        VU_EQ(ibv_post_srq_recv(s->srq, &wr, &bad), 0);
    else if (param == RUN_SHORT)
        VU_EQ(vu_post_srq(s->srq, RUN_ODD, at, RUN_PIECE, lkey), 0);
    else if (param == RUN_BAD_KEY)
        VU_EQ(vu_post_srq(s->srq, RUN_ODD, at, RUN_BYTES, lkey ^ 0x5a), 0);
    else
        post(s, RUN_ODD, RUN_BYTES);
}

static void check_run(struct srq_rig *s, uint32_t i, int param)
{
    const struct ibv_wc wc = vu_expect(s->rig.ep.rcq, i, IBV_WC_SUCCESS);
    const bool in_pieces = param == RUN_PIECES && i == RUN_ODD;
    const uint32_t len_bytes = RUN_BYTES - i, first = in_pieces ? RUN_PIECE : len_bytes;
    VU_EQ(wc.opcode, IBV_WC_RECV);
    VU_EQ(wc.qp_num, s->eps[0].qp->qp_num);
    VU_EQ(wc.byte_len, len_bytes);
    VU_EQ(wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV), i % 2 ? IBV_WC_WITH_IMM : 0);
    if (i % 2)
        VU_EQ(ntohl(wc.imm_data), i);
    rig_bytes(&s->rig, i * 4096, first, (uint8_t)(0x10 + i));
    rig_bytes(&s->rig, i * 4096 + first, RUN_SECOND - first, 0xb5);
    if (in_pieces)
        rig_bytes(&s->rig, i * 4096 + RUN_SECOND, len_bytes - first, (uint8_t)(0x10 + i));
}

static void run_b(int sock, int param)
{
    struct srq_rig s;
    open_srq(&s, sock, true, 32);
    for (uint32_t i = 0; i < RUN; i++)
        if (i == RUN_ODD)
            post_odd(&s, param);
        else
            post(&s, i, RUN_BYTES);
    struct ibv_srq_attr attr = {.srq_limit = param == RUN_LIMIT ? RUN - RUN_ODD : 0};
    VU_EQ(ibv_modify_srq(s.srq, &attr, IBV_SRQ_LIMIT), 0);
    vu_barrier(sock);
    vu_barrier(sock); /* all are sent */
    for (uint32_t i = 0; i < (ends_run(param) ? RUN_ODD : RUN); i++)
        check_run(&s, i, param);
    if (param == RUN_LIMIT) {
        VU_CHECK(vu_async_event(s.rig.dev.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, EVENT_MS), "no event");
        VU_EQ(ibv_query_srq(s.srq, &attr), 0);
        VU_EQ(attr.srq_limit, 0);
    }
    if (ends_run(param)) {
        vu_expect(s.rig.ep.rcq, RUN_ODD,
                  param == RUN_SHORT ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR);
        vu_expect_none(s.rig.ep.rcq, 20);
    }
    vu_barrier(sock);
    if (ends_run(param))
        VU_EQ(vu_expect(s.rig.ep.rcq, RUN_ODD + 1, IBV_WC_SUCCESS).qp_num, s.eps[1].qp->qp_num);
    vu_barrier(sock);
    close_srq(&s);
}

const struct sem_case sem_srqs[] = {
    {"srq__shared_by_qps_short", shared_a, shared_b, 40},
    {"srq__shared_by_qps_long", shared_a, shared_b, 4000},
    {"srq__empty_then_posted", empty_a, empty_b, 0},
    {"srq__limit_fires_once", limit_a, limit_b, 0},
    {"srq__last_wqe_reached", peer_a, last_wqe_b, 0},
    {"srq__among_writes_and_reads", mixed_a, mixed_b, 0},
    {"srq__full", peer_a, full_b, 0},
    {"srq__receive_too_small", too_small_a, too_small_b, 512},
    {"srq__receive_too_small_long", too_small_a, too_small_b, 200000},
    {"srq__run_of_short_messages", run_a, run_b, RUN_PLAIN},
    {"srq__run_with_one_in_pieces", run_a, run_b, RUN_PIECES},
    {"srq__run_with_one_too_short", run_a, run_b, RUN_SHORT},
    {"srq__run_with_one_bad_key", run_a, run_b, RUN_BAD_KEY},
    {"srq__run_below_the_limit", run_a, run_b, RUN_LIMIT},
    {"srq__sqd_waits_for_what_is_sent", draining_a, draining_b, 0},
    {"modify_srq__resize", resize_a, resize_b, 0},
    {0},
};
