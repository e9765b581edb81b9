/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: requests the target refuses, and requests that are wrong at home. Both sides' statuses. */
#include <stdlib.h>
#include <string.h>

#include "sem.h"

enum fault {
    BAD_KEY,
    STALE_KEY,
    PAST_END,
    BEFORE_START,
    FAR_AWAY,
    WRAPS,
    NO_MR_RIGHT,
    OTHER_PD,
    NO_QP_RIGHT,
    NO_QP_RIGHT_EMPTY, /* an access to nothing */
    MISALIGNED,
    LONG_PAST_END, /* longer than any buffer on the way */
};
enum { FAULT_BITS = 8 };
#define FAULT(opcode, fault) ((int)(opcode) << FAULT_BITS | (fault))

#define B_FILL 0xb5
#define LONG_BYTES 200000
#define CANARY_WR 77

static uint32_t op_len(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 512;
}

static int right_of(enum ibv_wr_opcode opcode)
{
    if (opcode == IBV_WR_RDMA_READ)
        return IBV_ACCESS_REMOTE_READ;
    return op_len(opcode) == 8 ? IBV_ACCESS_REMOTE_ATOMIC : IBV_ACCESS_REMOTE_WRITE;
}

/* IBTA Vol1 9.7.5.2.3 to .4: keys, bounds and a region's rights are access errors; what the QP does
 * not support is an invalid request. */
static enum ibv_wc_status status_of(enum fault fault)
{
    return fault == NO_QP_RIGHT || fault == NO_QP_RIGHT_EMPTY || fault == MISALIGNED
               ? IBV_WC_REM_INV_REQ_ERR
               : IBV_WC_REM_ACCESS_ERR;
}

static void aim(struct vu_send *send, enum fault fault)
{
    if (fault == BAD_KEY)
        send->rkey ^= 0x5a5a5a00;
    else if (fault == STALE_KEY)
        send->rkey ^= 0x01;
    else if (fault == PAST_END || fault == LONG_PAST_END)
        send->remote += RIG_BYTES - send->len_bytes + 8;
    else if (fault == BEFORE_START)
        send->remote -= 8;
    else if (fault == FAR_AWAY)
        send->remote += 1ull << 40;
    else if (fault == WRAPS)
        send->remote = UINT64_MAX - 7;
    else if (fault == MISALIGNED)
        send->remote += 4;
}

/* The faulty request completes first, with its status; what was posted after it is flushed in
 * order. */
static void refused_a(int sock, int param)
{
    enum ibv_wr_opcode opcode = (enum ibv_wr_opcode)(param >> FAULT_BITS);
    enum fault fault = (enum fault)(param & ((1 << FAULT_BITS) - 1));
    struct rig rig;
    rig_open(&rig, sock, NULL);
    uint32_t len = fault == LONG_PAST_END       ? LONG_BYTES
                   : fault == NO_QP_RIGHT_EMPTY ? 0
                                                : op_len(opcode);
    struct vu_send bad = rig_send(&rig, opcode, 1, 0, len);
    aim(&bad, fault);
    rig_post(&rig, &bad);
    struct vu_send after = rig_send(&rig, IBV_WR_RDMA_WRITE, 2, 4096, 64);
    int second = vu_post_send(rig.ep.qp, &after);
    VU_EQ(second, 0);
    vu_expect(rig.ep.scq, 1, status_of(fault));
    vu_expect(rig.ep.scq, 2, IBV_WC_WR_FLUSH_ERR);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    rig_bytes(&rig, 0, len, 0); /* a refused READ or atomic brings nothing */
    vu_barrier(sock);
    rig_close(&rig);
}

static void refused_b(int sock, int param)
{
    enum ibv_wr_opcode opcode = (enum ibv_wr_opcode)(param >> FAULT_BITS);
    enum fault fault = (enum fault)(param & ((1 << FAULT_BITS) - 1));
    struct rig_attr attr = {.fill = B_FILL, .conn = vu_conn_default};
    struct ibv_pd *other_pd = NULL;
    struct rig rig;
    if (fault == NO_MR_RIGHT)
        attr.access = VU_ACCESS_ALL & ~right_of(opcode);
    if (fault == NO_QP_RIGHT || fault == NO_QP_RIGHT_EMPTY)
        attr.conn.access &= ~right_of(opcode);
    rig_prepare(&rig, sock, &attr);
    if (fault == OTHER_PD) {
        VU_EQ(ibv_dereg_mr(rig.mr), 0);
        other_pd = ibv_alloc_pd(rig.dev.ctx);
        VU_TRUE(other_pd);
        rig.mr = ibv_reg_mr(other_pd, rig.buf, RIG_BYTES, VU_ACCESS_ALL);
        VU_TRUE(rig.mr);
    }
    bool use_recv = fault != OTHER_PD; /* our region cannot serve as a receive buffer there */
    rig_connect(&rig, &attr.conn);
    if (use_recv)
        rig_recv(&rig, CANARY_WR, 128 * 1024, 64);
    vu_barrier(sock);
    rig_bytes(&rig, 0, RIG_BYTES, B_FILL);
    VU_CHECK(vu_async_event(rig.dev.ctx,
                            status_of(fault) == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR
                                                                      : IBV_EVENT_QP_REQ_ERR,
                            20000),
             "no asynchronous event at the target");
    struct ibv_wc wc;
    if (use_recv) {
        VU_EQ(vu_poll(rig.ep.rcq, &wc, 1, 20000), 1);
        VU_EQ(wc.wr_id, CANARY_WR);
        if (opcode ==
            IBV_WR_RDMA_WRITE_WITH_IMM) /* it may have been taken for the immediate already */
            VU_TRUE(wc.status != IBV_WC_SUCCESS);
        else
            VU_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    }
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    vu_ep_destroy(&rig.ep);
    VU_EQ(ibv_dereg_mr(rig.mr), 0);
    if (other_pd)
        VU_EQ(ibv_dealloc_pd(other_pd), 0);
    vu_dev_close(&rig.dev);
}

/* Requests before the one that is refused are answered, however many they are. */
#define READS_DUE 8

static void after_reads_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    for (uint32_t i = 0; i < READS_DUE; i++) {
        struct vu_send read = rig_send(&rig, IBV_WR_RDMA_READ, i, 0, LONG_BYTES);
        rig_post(&rig, &read);
    }
    struct vu_send bad = rig_send(&rig, IBV_WR_RDMA_WRITE, READS_DUE, 0, 64);
    bad.rkey ^= 0x5a5a5a00;
    rig_post(&rig, &bad);
    for (uint32_t i = 0; i < READS_DUE; i++)
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
    vu_expect(rig.ep.scq, READS_DUE, IBV_WC_REM_ACCESS_ERR);
    rig_bytes(&rig, 0, LONG_BYTES, B_FILL);
    vu_barrier(sock);
    rig_close(&rig);
}

static void after_reads_b(int sock, int param)
{
    (void)param;
    struct rig_attr attr = {.fill = B_FILL};
    struct rig rig;
    rig_open(&rig, sock, &attr);
    vu_barrier(sock);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    rig_close(&rig);
}

/* A receive of `param` bytes takes a SEND of 512, or one longer than any buffer on the way. */
static void too_small_a(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, param < 4096 ? 512 : LONG_BYTES);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_REM_INV_REQ_ERR);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void too_small_b(int sock, int param)
{
    struct rig_attr attr = {.fill = B_FILL};
    struct rig rig;
    rig_open(&rig, sock, &attr);
    rig_recv(&rig, 10, 4096, (uint32_t)param);
    rig_recv(&rig, 11, 8192, 4096);
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 10, IBV_WC_LOC_LEN_ERR);
    vu_expect(rig.ep.rcq, 11, IBV_WC_WR_FLUSH_ERR);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    rig_bytes(&rig, 4096 + (uint32_t)param, 4096, B_FILL); /* nothing behind the buffer */
    vu_barrier(sock);
    rig_close(&rig);
}

enum local_fault { LOCAL_BAD_KEY, LOCAL_BOUNDS, LOCAL_PD, LOCAL_READ_ONLY };

/* The request never leaves: local protection error, and the target neither sees nor minds it. */
static void local_a(int sock, int param)
{
    struct rig_attr attr = {.access = param == LOCAL_READ_ONLY ? IBV_ACCESS_REMOTE_READ : 0};
    struct rig rig;
    rig_open(&rig, sock, &attr);
    struct vu_send send =
        rig_send(&rig, param == LOCAL_READ_ONLY ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 1, 0, 512);
    struct ibv_pd *pd = NULL;
    struct ibv_mr *foreign = NULL;
    if (param == LOCAL_BAD_KEY)
        send.lkey ^= 0x5a5a5a00;
    else if (param == LOCAL_BOUNDS)
        send.addr = rig.buf + RIG_BYTES - 511;
    else if (param == LOCAL_PD) {
        pd = ibv_alloc_pd(rig.dev.ctx);
        VU_TRUE(pd);
        foreign = ibv_reg_mr(pd, rig.buf, RIG_BYTES, VU_ACCESS_ALL);
        VU_TRUE(foreign);
        send.lkey = foreign->lkey;
    }
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_LOC_PROT_ERR);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    rig_bytes(&rig, 0, 512, 0);
    if (foreign)
        VU_EQ(ibv_dereg_mr(foreign), 0);
    if (pd)
        VU_EQ(ibv_dealloc_pd(pd), 0);
    vu_barrier(sock);
    rig_close(&rig);
}

static void local_b(int sock, int param)
{
    (void)param;
    struct rig_attr attr = {.fill = B_FILL};
    struct rig rig;
    rig_open(&rig, sock, &attr);
    rig_recv(&rig, 10, 4096, 64);
    vu_barrier(sock);
    rig_bytes(&rig, 0, RIG_BYTES, B_FILL);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTS);
    rig_close(&rig);
}

/* The target's own receive buffer is unusable: its receive fails, the sender learns "operational
 * error". */
static void recv_fault_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, 512);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_REM_OP_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void recv_fault_b(int sock, int param)
{
    struct rig_attr attr = {.access = param == LOCAL_READ_ONLY ? IBV_ACCESS_REMOTE_READ : 0,
                            .fill = B_FILL};
    struct rig rig;
    rig_open(&rig, sock, &attr);
    uint32_t lkey = param == LOCAL_BAD_KEY ? rig.mr->lkey ^ 0x5a5a5a00 : rig.mr->lkey;
    uint8_t *addr = param == LOCAL_BOUNDS ? rig.buf + RIG_BYTES - 500 : rig.buf;
    VU_EQ(vu_post_recv(rig.ep.qp, 10, addr, 512, lkey), 0);
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 10, IBV_WC_LOC_PROT_ERR);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    rig_bytes(&rig, 0, RIG_BYTES, B_FILL);
    vu_barrier(sock);
    rig_close(&rig);
}

/* One QP's error leaves its neighbour between the same two processes alone. */
static void neighbour_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct vu_ep second;
    rig_open(&rig, sock, NULL);
    rig_second(&rig, &second);
    struct vu_send bad = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 64);
    bad.rkey ^= 0x5a5a5a00;
    rig_post(&rig, &bad);
    vu_expect(rig.ep.scq, 1, IBV_WC_REM_ACCESS_ERR);
    memset(rig.buf, 0xa1, 64);
    struct vu_send good = rig_send(&rig, IBV_WR_RDMA_WRITE, 2, 0, 64);
    VU_EQ(vu_post_send(second.qp, &good), 0);
    vu_expect(second.scq, 2, IBV_WC_SUCCESS);
    vu_barrier(sock);
    vu_barrier(sock); /* the end of ours may be the end of its peer */
    vu_ep_destroy(&second);
    rig_close(&rig);
}

static void neighbour_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct vu_ep second;
    rig_open(&rig, sock, NULL);
    rig_second(&rig, &second);
    vu_barrier(sock);
    rig_bytes(&rig, 0, 64, 0xa1);
    VU_EQ(vu_ep_state(&second), IBV_QPS_RTS);
    vu_barrier(sock);
    vu_ep_destroy(&second);
    rig_close(&rig);
}

#define REFUSED(name, opcode, fault)                                        \
    {                                                                       \
        "target_refuses__" name, refused_a, refused_b, FAULT(opcode, fault) \
    }

/* A fault at home comes before what would be wrong at the target, for all that is sent from there:
 * the target hears of nothing. */
enum { TWICE_RKEY, TWICE_QP_RIGHT, TWICE_NO_RECEIVE, TWICE_SHORT_RECEIVE, TWICE_BAD_RECEIVE };
#define TWICE(opcode, fault, len) ((len) << 12 | (int)(opcode) << 4 | (fault))

static void twice_a(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_send send = rig_send(&rig, (enum ibv_wr_opcode)(param >> 4 & 0xff), 1, 0,
                                   (uint32_t)(param >> 12 & 0xfff));
    send.lkey ^= 0x5a5a5a00;
    if ((param & 15) == TWICE_RKEY)
        send.rkey ^= 0x5a5a5a00;
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_LOC_PROT_ERR);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    vu_barrier(sock);
    vu_barrier(sock); /* the end of this process would end the other side's receive, too */
    rig_close(&rig);
}

static void twice_b(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.fill = B_FILL, .conn = vu_conn_default};
    if ((param & 15) == TWICE_QP_RIGHT)
        attr.conn.access = IBV_ACCESS_REMOTE_READ;
    rig_prepare(&rig, sock, &attr);
    vu_ep_init(&rig.ep, &attr.conn); /* the receive is there before anybody can send */
    uint32_t key = rig.mr->lkey ^ ((param & 15) == TWICE_BAD_RECEIVE ? 0x5a5a5a00 : 0);
    uint32_t len = (param & 15) == TWICE_SHORT_RECEIVE ? 16 : RIG_BYTES;
    if ((param & 15) != TWICE_NO_RECEIVE)
        VU_EQ(vu_post_recv(rig.ep.qp, 10, rig.buf, len, key), 0);
    rig_connect(&rig, &attr.conn);
    vu_barrier(sock);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTS);
    vu_expect_none(rig.ep.rcq, 0);
    rig_bytes(&rig, 0, RIG_BYTES, B_FILL);
    vu_barrier(sock);
    rig_close(&rig);
}

const struct sem_case sem_errors[] = {
    REFUSED("write_bad_key", IBV_WR_RDMA_WRITE, BAD_KEY),
    REFUSED("write_stale_key", IBV_WR_RDMA_WRITE, STALE_KEY),
    REFUSED("write_past_end", IBV_WR_RDMA_WRITE, PAST_END),
    REFUSED("write_before_start", IBV_WR_RDMA_WRITE, BEFORE_START),
    REFUSED("write_far_away", IBV_WR_RDMA_WRITE, FAR_AWAY),
    REFUSED("write_wraps", IBV_WR_RDMA_WRITE, WRAPS),
    REFUSED("write_no_mr_right", IBV_WR_RDMA_WRITE, NO_MR_RIGHT),
    REFUSED("write_other_pd", IBV_WR_RDMA_WRITE, OTHER_PD),
    REFUSED("write_no_qp_right", IBV_WR_RDMA_WRITE, NO_QP_RIGHT),
    REFUSED("empty_write_no_qp_right", IBV_WR_RDMA_WRITE, NO_QP_RIGHT_EMPTY),
    REFUSED("empty_write_imm_no_qp_right", IBV_WR_RDMA_WRITE_WITH_IMM, NO_QP_RIGHT_EMPTY),
    REFUSED("empty_read_no_qp_right", IBV_WR_RDMA_READ, NO_QP_RIGHT_EMPTY),
    REFUSED("write_imm_bad_key", IBV_WR_RDMA_WRITE_WITH_IMM, BAD_KEY),
    REFUSED("long_write_past_end", IBV_WR_RDMA_WRITE, LONG_PAST_END),
    REFUSED("long_read_past_end", IBV_WR_RDMA_READ, LONG_PAST_END),
    REFUSED("long_write_imm_past_end", IBV_WR_RDMA_WRITE_WITH_IMM, LONG_PAST_END),
    REFUSED("read_bad_key", IBV_WR_RDMA_READ, BAD_KEY),
    REFUSED("read_past_end", IBV_WR_RDMA_READ, PAST_END),
    REFUSED("read_before_start", IBV_WR_RDMA_READ, BEFORE_START),
    REFUSED("read_no_mr_right", IBV_WR_RDMA_READ, NO_MR_RIGHT),
    REFUSED("read_other_pd", IBV_WR_RDMA_READ, OTHER_PD),
    REFUSED("read_no_qp_right", IBV_WR_RDMA_READ, NO_QP_RIGHT),
    REFUSED("cas_bad_key", IBV_WR_ATOMIC_CMP_AND_SWP, BAD_KEY),
    REFUSED("cas_no_mr_right", IBV_WR_ATOMIC_CMP_AND_SWP, NO_MR_RIGHT),
    REFUSED("cas_misaligned", IBV_WR_ATOMIC_CMP_AND_SWP, MISALIGNED),
    REFUSED("faa_past_end", IBV_WR_ATOMIC_FETCH_AND_ADD, PAST_END),
    REFUSED("faa_other_pd", IBV_WR_ATOMIC_FETCH_AND_ADD, OTHER_PD),
    REFUSED("faa_no_qp_right", IBV_WR_ATOMIC_FETCH_AND_ADD, NO_QP_RIGHT),
    REFUSED("faa_misaligned", IBV_WR_ATOMIC_FETCH_AND_ADD, MISALIGNED),
    {"target_refuses__after_reads_that_are_due", after_reads_a, after_reads_b, 0},
    {"receive_too_small__511", too_small_a, too_small_b, 511},
    {"receive_too_small__long_message", too_small_a, too_small_b, 4096},
    {"receive_too_small__8", too_small_a, too_small_b, 8},
    {"local_fault__bad_key", local_a, local_b, LOCAL_BAD_KEY},
    {"local_fault__bounds", local_a, local_b, LOCAL_BOUNDS},
    {"local_fault__other_pd", local_a, local_b, LOCAL_PD},
    {"local_fault__read_into_read_only", local_a, local_b, LOCAL_READ_ONLY},
    {"receive_fault__bad_key", recv_fault_a, recv_fault_b, LOCAL_BAD_KEY},
    {"receive_fault__bounds", recv_fault_a, recv_fault_b, LOCAL_BOUNDS},
    {"receive_fault__read_only", recv_fault_a, recv_fault_b, LOCAL_READ_ONLY},
    {"error__spares_other_qps", neighbour_a, neighbour_b, 0},
    {"two_faults__write_bad_rkey", twice_a, twice_b, TWICE(IBV_WR_RDMA_WRITE, TWICE_RKEY, 512)},
    {"two_faults__write_no_qp_right", twice_a, twice_b,
     TWICE(IBV_WR_RDMA_WRITE, TWICE_QP_RIGHT, 512)},
    {"two_faults__imm_no_receive", twice_a, twice_b,
     TWICE(IBV_WR_RDMA_WRITE_WITH_IMM, TWICE_NO_RECEIVE, 512)},
    {"two_faults__send_no_receive", twice_a, twice_b, TWICE(IBV_WR_SEND, TWICE_NO_RECEIVE, 64)},
    {"two_faults__send_short_receive", twice_a, twice_b,
     TWICE(IBV_WR_SEND, TWICE_SHORT_RECEIVE, 64)},
    {"two_faults__long_send_short_receive", twice_a, twice_b,
     TWICE(IBV_WR_SEND, TWICE_SHORT_RECEIVE, 2048)},
    {"two_faults__send_bad_receive", twice_a, twice_b, TWICE(IBV_WR_SEND, TWICE_BAD_RECEIVE, 64)},
    {"two_faults__long_send_bad_receive", twice_a, twice_b,
     TWICE(IBV_WR_SEND, TWICE_BAD_RECEIVE, 2048)},
    {0},
};
