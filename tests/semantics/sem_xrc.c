/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: extended reliable connections (IBTA Vol1 annex A14). Side a has the initiator, side b a
 * target QP and two SRQs of its domain, each with its own CQ and its own PD. */
#include <errno.h>
#include <fcntl.h>
#include <sidewire/flush.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "xrc_member.h"

#define SRQS 2
#define EXTENDED 1

struct xrc_rig {
    struct rig rig; /* its QP is not used */
    struct ibv_xrcd *xrcd;
    struct ibv_qp *qp;
    struct ibv_pd *pds[SRQS];
    struct ibv_cq *cqs[SRQS];
    struct ibv_srq *srqs[SRQS];
    struct ibv_mr *mrs[SRQS]; /* of the whole buffer */
    uint32_t nums[SRQS];      /* the other side's */
    uint32_t keys[SRQS];
    uint32_t peer_qpn;
};

static struct ibv_srq *make_srq(struct xrc_rig *x, int i)
{
    struct ibv_srq_init_attr_ex init = {.attr = {.max_wr = 16, .max_sge = 1},
                                        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                                        .srq_type = IBV_SRQT_XRC,
                                        .pd = x->pds[i],
                                        .xrcd = x->xrcd,
                                        .cq = x->cqs[i]};
    return ibv_create_srq_ex(x->rig.dev.ctx, &init);
}

static struct ibv_qp *make_target(struct xrc_rig *x)
{
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = x->xrcd};
    struct ibv_qp *qp = ibv_create_qp_ex(x->rig.dev.ctx, &init);
    VU_CHECK(qp, "creating a target: %s", strerror(errno));
    return qp;
}

static struct ibv_qp *make_initiator(struct xrc_rig *x, bool extended)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = x->rig.ep.scq,
        .cap = {.max_send_wr = 16, .max_send_sge = 1},
        .qp_type = IBV_QPT_XRC_SEND,
        .comp_mask = IBV_QP_INIT_ATTR_PD | (extended ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
        .pd = x->rig.dev.pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
                          IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH};
    struct ibv_qp *qp = ibv_create_qp_ex(x->rig.dev.ctx, &init);
    VU_CHECK(qp, "creating an initiator: %s", strerror(errno));
    return qp;
}

static void connect_qp(struct xrc_rig *x, const struct vu_conn *conn)
{
    struct vu_ep ep = {.dev = &x->rig.dev, .qp = x->qp};
    vu_connect(&ep, x->rig.sock, conn);
    x->peer_qpn = 0;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    VU_EQ(ibv_query_qp(x->qp, &attr, IBV_QP_DEST_QPN, &init), 0);
    x->peer_qpn = attr.dest_qp_num;
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
    const struct vu_ep ep = {.qp = qp};
    return vu_ep_state(&ep);
}

struct names {
    uint32_t nums[SRQS], keys[SRQS];
};

static void open_target(struct xrc_rig *x, int sock, const struct vu_conn *conn)
{
    struct names names;
    memset(x, 0, sizeof(*x));
    rig_open(&x->rig, sock, NULL);
    x->xrcd = member_open_domain(x->rig.dev.ctx, -1, O_CREAT);
    VU_CHECK(x->xrcd, "ibv_open_xrcd: %s", strerror(errno));
    x->qp = make_target(x); /* before the SRQs: the order does not matter */
    for (int i = 0; i < SRQS; i++) {
        x->pds[i] = ibv_alloc_pd(x->rig.dev.ctx);
        x->cqs[i] = ibv_create_cq(x->rig.dev.ctx, 16, NULL, NULL, 0);
        VU_TRUE(x->pds[i] && x->cqs[i]);
        x->srqs[i] = make_srq(x, i);
        VU_CHECK(x->srqs[i], "an XRC SRQ: %s", strerror(errno));
        VU_EQ(ibv_get_srq_num(x->srqs[i], &names.nums[i]), 0);
        x->mrs[i] =
            ibv_reg_mr(x->pds[i], x->rig.buf, RIG_BYTES, VU_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL);
        VU_TRUE(x->mrs[i]);
        names.keys[i] = x->mrs[i]->rkey;
    }
    VU_TRUE(names.nums[0] != names.nums[1]);
    connect_qp(x, conn);
    vu_put(sock, &names, sizeof(names));
    vu_barrier(sock);
}

static void open_initiator(struct xrc_rig *x, int sock, bool extended, const struct vu_conn *conn)
{
    struct names names;
    memset(x, 0, sizeof(*x));
    rig_open(&x->rig, sock, NULL);
    x->qp = make_initiator(x, extended);
    connect_qp(x, conn);
    vu_get(sock, &names, sizeof(names));
    memcpy(x->nums, names.nums, sizeof(x->nums));
    memcpy(x->keys, names.keys, sizeof(x->keys));
    vu_barrier(sock);
}

static void close_xrc(struct xrc_rig *x)
{
    VU_EQ(ibv_destroy_qp(x->qp), 0);
    for (int i = 0; i < SRQS && x->xrcd; i++) {
        VU_EQ(ibv_destroy_srq(x->srqs[i]), 0);
        VU_EQ(ibv_destroy_cq(x->cqs[i]), 0);
        VU_EQ(ibv_dereg_mr(x->mrs[i]), 0);
        VU_EQ(ibv_dealloc_pd(x->pds[i]), 0);
    }
    if (x->xrcd)
        VU_EQ(ibv_close_xrcd(x->xrcd), 0);
    rig_close(&x->rig);
}

/* A request to SRQ i. */
static int post(struct xrc_rig *x, enum ibv_wr_opcode opcode, uint64_t wr_id, int i,
                uint32_t offset, uint32_t len_bytes)
{
    const struct xrc_to there = {x->nums[i], x->keys[i], x->rig.peer.addr};
    return xrc_post(x->qp, &x->rig, opcode, wr_id, &there, offset, len_bytes);
}

static void recv_on(struct xrc_rig *x, int i, uint64_t wr_id, uint32_t offset, uint32_t len_bytes)
{
    VU_EQ(vu_post_srq(x->srqs[i], wr_id, x->rig.buf + offset, len_bytes, x->mrs[i]->lkey), 0);
}

/* --- messages --- */

static const uint32_t lengths[] = {16, 3000, 100000};

/* Messages go to the SRQ they name, complete on its CQ, with the target's number and the sender's.
 */
static void named_a(int sock, int param)
{
    struct xrc_rig x;
    open_initiator(&x, sock, false, NULL);
    for (unsigned int i = 0; i < 6; i++) {
        memset(x.rig.buf, (int)(0x10 + i), 100000);
        enum ibv_wr_opcode opcode = param ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM;
        VU_EQ(post(&x, opcode, i, (int)i % SRQS, 0, lengths[i / 2]), 0);
        vu_expect(x.rig.ep.scq, i, IBV_WC_SUCCESS);
        vu_barrier(sock);
        vu_barrier(sock);
    }
    close_xrc(&x);
}

static void named_b(int sock, int param)
{
    struct xrc_rig x;
    open_target(&x, sock, NULL);
    for (unsigned int i = 0; i < 6; i++)
        recv_on(&x, (int)i % SRQS, 100 + i, 0, 100000);
    for (unsigned int i = 0; i < 6; i++) {
        vu_barrier(sock);
        struct ibv_wc wc = vu_expect(x.cqs[i % SRQS], 100 + i, IBV_WC_SUCCESS);
        VU_EQ(wc.opcode, param ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
        VU_EQ(wc.byte_len, lengths[i / 2]);
        VU_EQ(wc.qp_num, x.qp->qp_num);
        VU_EQ(wc.src_qp, x.peer_qpn);
        VU_EQ(be32toh(wc.imm_data), i);
        rig_bytes(&x.rig, 0, lengths[i / 2], (uint8_t)(0x10 + i));
        vu_expect_none(x.cqs[(i + 1) % SRQS], 5);
        vu_barrier(sock);
    }
    close_xrc(&x);
}

/* The number may be told before or after the data. */
static void built_a(int sock, int param)
{
    (void)param;
    struct xrc_rig x;
    open_initiator(&x, sock, true, NULL);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(x.qp);
    memset(x.rig.buf, 0xa1, 64);
    for (int i = 0; i < SRQS; i++) {
        ibv_wr_start(ex);
        ex->wr_id = (uint64_t)i;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(ex);
        if (i == 0)
            ibv_wr_set_xrc_srqn(ex, x.nums[i]);
        ibv_wr_set_sge(ex, x.rig.mr->lkey, (uintptr_t)x.rig.buf, 64);
        if (i == 1)
            ibv_wr_set_xrc_srqn(ex, x.nums[i]);
        VU_EQ(ibv_wr_complete(ex), 0);
        vu_expect(x.rig.ep.scq, (uint64_t)i, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    close_xrc(&x);
}

static void built_b(int sock, int param)
{
    (void)param;
    struct xrc_rig x;
    open_target(&x, sock, NULL);
    for (int i = 0; i < SRQS; i++)
        recv_on(&x, i, 10, 4096 * (uint32_t)i, 64);
    for (int i = 0; i < SRQS; i++) {
        vu_expect(x.cqs[i], 10, IBV_WC_SUCCESS);
        rig_bytes(&x.rig, 4096 * (uint32_t)i, 64, 0xa1);
    }
    vu_barrier(sock);
    close_xrc(&x);
}

/* --- remote accesses --- */

static void accesses_a(int sock, int param)
{
    (void)param;
    struct xrc_rig x;
    open_initiator(&x, sock, false, NULL);
    memset(x.rig.buf, 0xa1, 200);
    for (int i = 0; i < 4; i++) { /* by turns, so that PDs change */
        VU_EQ(post(&x, IBV_WR_RDMA_WRITE, 1, i % SRQS, (uint32_t)i * 50, 50), 0);
        vu_expect(x.rig.ep.scq, 1, IBV_WC_SUCCESS);
    }
    memset(x.rig.buf, 0, 4096);
    VU_EQ(post(&x, IBV_WR_RDMA_READ, 2, 1, 0, 200), 0);
    vu_expect(x.rig.ep.scq, 2, IBV_WC_SUCCESS);
    rig_bytes(&x.rig, 0, 200, 0xa1);
    VU_EQ(post(&x, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 0, 4096, 8), 0);
    vu_expect(x.rig.ep.scq, 3, IBV_WC_SUCCESS);
    vu_barrier(sock);
    close_xrc(&x);
}

static void accesses_b(int sock, int param)
{
    (void)param;
    struct xrc_rig x;
    open_target(&x, sock, NULL);
    vu_barrier(sock);
    rig_bytes(&x.rig, 0, 200, 0xa1);
    rig_bytes(&x.rig, 4096, 1, 5);
    close_xrc(&x);
}

enum fault { OTHER_PD, OTHER_PD_LONG, NO_SUCH_SRQ, NO_SUCH_SRQ_SEND, OTHER_DOMAIN };

/* A key counts in the PD of the SRQ that the request names; an SRQ only in the target's domain. */
static void refused_a(int sock, int param)
{
    struct xrc_rig x;
    open_initiator(&x, sock, false, NULL);
    uint32_t other;
    vu_get(sock, &other, sizeof(other));
    VU_EQ(post(&x, IBV_WR_RDMA_WRITE, 1, 0, 0, 64),
          0); /* that the key is remembered does not help */
    vu_expect(x.rig.ep.scq, 1, IBV_WC_SUCCESS);
    if (param <= OTHER_PD_LONG)
        x.nums[0] = x.nums[1];
    else
        x.nums[0] = param == OTHER_DOMAIN ? other : x.nums[0] + 77;
    VU_EQ(post(&x, param == NO_SUCH_SRQ_SEND ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, 2, 0, 0,
               param == OTHER_PD_LONG ? 100000 : 64),
          0);
    vu_expect(x.rig.ep.scq, 2,
              param <= OTHER_PD_LONG ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_INV_REQ_ERR);
    VU_EQ(state_of(x.qp), IBV_QPS_ERR);
    vu_barrier(sock);
    close_xrc(&x);
}

static void refused_b(int sock, int param)
{
    struct xrc_rig x;
    open_target(&x, sock, NULL);
    recv_on(&x, 0, 10, 8192, 64);
    struct ibv_xrcd *mine = x.xrcd;
    x.xrcd = member_open_domain(x.rig.dev.ctx, -1, O_CREAT);
    struct ibv_srq *stranger = make_srq(&x, 0);
    VU_TRUE(x.xrcd && stranger);
    uint32_t num;
    VU_EQ(ibv_get_srq_num(stranger, &num), 0);
    vu_put(sock, &num, sizeof(num));
    VU_TRUE(vu_async_event(x.rig.dev.ctx,
                           param <= OTHER_PD_LONG ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR,
                           20000));
    VU_EQ(state_of(x.qp), IBV_QPS_ERR);
    vu_expect_none(x.cqs[0], 20); /* the SRQ keeps its receive */
    vu_barrier(sock);
    VU_EQ(ibv_destroy_srq(stranger), 0);
    VU_EQ(ibv_close_xrcd(x.xrcd), 0);
    x.xrcd = mine;
    close_xrc(&x);
}

/* --- objects --- */

static void domains_a(int sock, int param)
{
    (void)param;
    char path[] = "/tmp/sidewire-xrcd-XXXXXX";
    struct xrc_rig x;
    memset(&x, 0, sizeof(x));
    rig_open(&x.rig, sock, NULL);
    struct ibv_context *ctx = x.rig.dev.ctx;
    int fd = mkstemp(path);
    VU_TRUE(fd >= 0);
    VU_TRUE(!member_open_domain(ctx, fd, 0) && errno == EAGAIN); /* there is none yet */
    VU_TRUE(!member_open_domain(ctx, 9999, O_CREAT) && errno == EBADF);
    x.xrcd = member_open_domain(ctx, fd, O_CREAT | O_EXCL);
    struct ibv_xrcd *again = member_open_domain(ctx, fd, 0),
                    *alone = member_open_domain(ctx, -1, O_CREAT);
    VU_TRUE(x.xrcd && again && alone && again != x.xrcd);
    VU_TRUE(!member_open_domain(ctx, fd, O_CREAT | O_EXCL) && errno == EINVAL);

    struct ibv_qp *qp = make_target(&x);
    struct ibv_qp_open_attr open_attr = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
                                                      IBV_QP_OPEN_ATTR_TYPE,
                                         .qp_num = qp->qp_num,
                                         .xrcd = alone,
                                         .qp_type = IBV_QPT_XRC_RECV};
    VU_TRUE(!ibv_open_qp(ctx, &open_attr) && errno == EINVAL); /* of another domain */
    open_attr.xrcd = again;
    struct ibv_qp *shared = ibv_open_qp(ctx, &open_attr);
    VU_CHECK(shared, "ibv_open_qp: %s", strerror(errno));
    VU_EQ(shared->qp_num, qp->qp_num);
    const struct vu_ep ep = {.dev = &x.rig.dev, .qp = qp};
    vu_ep_init((struct vu_ep *)(uintptr_t)&ep, &vu_conn_default);
    VU_EQ(state_of(shared), IBV_QPS_INIT);
    VU_EQ(ibv_close_xrcd(x.xrcd), EBUSY);
    VU_EQ(ibv_close_xrcd(again), EBUSY);
    VU_EQ(ibv_destroy_qp(qp), 0);
    VU_EQ(state_of(shared), IBV_QPS_INIT); /* it lives as long as somebody has it open */
    VU_EQ(ibv_close_xrcd(x.xrcd), 0);
    struct ibv_recv_wr recv = {0}, *bad_recv;
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;
    VU_EQ(ibv_post_recv(shared, &recv, &bad_recv), EINVAL);
    VU_EQ(ibv_post_send(shared, &send, &bad_send), EINVAL);
    VU_EQ(ibv_destroy_qp(shared), 0);
    VU_EQ(ibv_close_xrcd(again), 0);
    VU_EQ(ibv_close_xrcd(alone), 0);
    VU_TRUE(!member_open_domain(ctx, fd, 0) && errno == EAGAIN); /* gone with its last handle */
    close(fd);
    unlink(path);
    vu_barrier(sock);
    rig_close(&x.rig);
}

/* An SRQ may go while a target QP still serves others; a message to it is refused then. */
static void srq_gone_a(int sock, int param)
{
    (void)param;
    struct xrc_rig x;
    open_initiator(&x, sock, false, NULL);
    VU_EQ(post(&x, IBV_WR_SEND, 1, 1, 0, 64), 0);
    vu_expect(x.rig.ep.scq, 1, IBV_WC_SUCCESS);
    VU_EQ(post(&x, IBV_WR_SEND, 2, 0, 0, 64), 0);
    vu_expect(x.rig.ep.scq, 2, IBV_WC_REM_INV_REQ_ERR);
    vu_barrier(sock);
    close_xrc(&x);
}

static void srq_gone_b(int sock, int param)
{
    (void)param;
    struct xrc_rig x;
    memset(&x, 0, sizeof(x));
    open_target(&x, sock, NULL);
    VU_EQ(ibv_destroy_cq(x.cqs[0]), EBUSY);
    VU_EQ(ibv_destroy_srq(x.srqs[0]), 0);
    recv_on(&x, 1, 10, 0, 64);
    vu_expect(x.cqs[1], 10, IBV_WC_SUCCESS);
    vu_barrier(sock);
    x.srqs[0] = make_srq(&x, 0);
    VU_TRUE(x.srqs[0]);
    close_xrc(&x);
}

/* ATOMIC WRITE and FLUSH name an SRQ, too: its PD is what their keys must be of. */
static void newer_a(int sock, int other_pd)
{
    struct xrc_rig x;
    open_initiator(&x, sock, true, NULL);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(x.qp);
    const uint64_t word = 0x1122334455667788;
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ex->wr_id = 1;
    ibv_wr_atomic_write(ex, x.keys[1], x.rig.peer.addr + 64, &word);
    ibv_wr_set_xrc_srqn(ex, x.nums[1]);
    ex->wr_id = 2;
    ibv_wr_flush(ex, x.keys[other_pd ? 0 : 1], x.rig.peer.addr, 128, IBV_FLUSH_GLOBAL,
                 IBV_FLUSH_RANGE);
    ibv_wr_set_xrc_srqn(ex, x.nums[1]);
    VU_EQ(ibv_wr_complete(ex), 0);
    VU_EQ(vu_expect(x.rig.ep.scq, 1, IBV_WC_SUCCESS).opcode, IBV_WC_ATOMIC_WRITE);
    struct ibv_wc wc =
        vu_expect(x.rig.ep.scq, 2, other_pd ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
    VU_TRUE(other_pd || wc.opcode == IBV_WC_FLUSH);
    vu_barrier(sock);
    close_xrc(&x);
}

static void newer_b(int sock, int other_pd)
{
    (void)other_pd;
    struct xrc_rig x;
    struct vu_conn conn = vu_conn_default;
    conn.access |= IBV_ACCESS_FLUSH_GLOBAL;
    open_target(&x, sock, &conn);
    vu_barrier(sock);
    VU_EQ(*(uint64_t *)(x.rig.buf + 64), 0x1122334455667788);
    close_xrc(&x);
}

/* A request to nobody fails in its turn: not before the one that still waits for a receive. */
static void in_turn_a(int sock, int param)
{
    (void)param;
    struct xrc_rig x;
    open_initiator(&x, sock, false, NULL);
    VU_EQ(post(&x, IBV_WR_SEND, 1, 0, 0, 64), 0);
    x.nums[0] = 0xffffff;
    VU_EQ(post(&x, IBV_WR_RDMA_WRITE, 2, 0, 0, 64), 0);
    vu_expect_none(x.rig.ep.scq, 50);
    vu_barrier(sock);
    vu_expect(x.rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_expect(x.rig.ep.scq, 2, IBV_WC_REM_INV_REQ_ERR);
    vu_barrier(sock);
    close_xrc(&x);
}

static void in_turn_b(int sock, int param)
{
    (void)param;
    struct xrc_rig x;
    open_target(&x, sock, NULL);
    vu_barrier(sock);
    recv_on(&x, 0, 10, 8192, 64);
    vu_expect(x.cqs[0], 10, IBV_WC_SUCCESS);
    vu_barrier(sock);
    close_xrc(&x);
}

const struct sem_case sem_xrc[] = {
    {"xrc__sends_go_where_they_name", named_a, named_b, 0},
    {"xrc__immediates_go_where_they_name", named_a, named_b, 1},
    {"xrc__builders", built_a, built_b, 0},
    {"xrc__remote_accesses", accesses_a, accesses_b, 0},
    {"xrc__atomic_write_and_flush", newer_a, newer_b, 0},
    {"xrc__flush_of_another_pd", newer_a, newer_b, 1},
    {"xrc__key_of_another_pd", refused_a, refused_b, OTHER_PD},
    {"xrc__key_of_another_pd_long", refused_a, refused_b, OTHER_PD_LONG},
    {"xrc__no_such_srq", refused_a, refused_b, NO_SUCH_SRQ},
    {"xrc__no_such_srq_send", refused_a, refused_b, NO_SUCH_SRQ_SEND},
    {"xrc__srq_of_another_domain", refused_a, refused_b, OTHER_DOMAIN},
    {"xrc__no_such_srq_in_turn", in_turn_a, in_turn_b, 0},
    {"xrc__domains_and_handles", domains_a, sem_idle, 0},
    {"xrc__srq_gone", srq_gone_a, srq_gone_b, 0},
    {0},
};
