/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Data integrity: integrity [--threads] [--plain] [--seed N] [--rounds N] [--seconds N] [--max
 * BYTES] Two sides send, write, read and do atomics at the same time over three QPs (one with the
 * builder interface, one with an SRQ), with randomly shaped lists; after each round all memory of
 * both must equal the model's (plan.h), and completions must have come in order, each exactly once
 * and with the right contents.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plan.h"

#define ROUND_TIMEOUT_MS 20000
#define RECV_BIT (1u << 31)
#define PLACED_ID UINT64_MAX
#define PLACED_MS 10000

struct options {
    uint64_t seed;
    int rounds, seconds;
    uint32_t len_max;
    bool plain; /* without the builder interface */
};

struct keys {
    uint64_t addrs[ARENA_BUFS]; /* of the blocks */
    uint32_t rkeys[ARENA_BUFS][2];
};

struct half { /* one QP as seen from this side, in this round */
    struct vu_ep ep;
    int sends[PLAN_OPS], send_count, send_next, send_done; /* indices into our ops */
    int recvs[PLAN_OPS], recv_count, recv_next, recv_done; /* indices into the other side's ops */
};

struct side {
    int sock, index;
    struct options options;
    struct vu_dev dev;
    struct ibv_srq *srq;
    struct arena arena;
    struct plan plan;
    struct keys peer;
    struct half halves[PLAN_QPS];
    struct vu_random own; /* pace; need not agree with the other side's */
    uint8_t scratch[PLAN_OPS][PLAN_INLINE_BYTES];
    int round;
};

static const struct vu_conn conn = {.access = VU_ACCESS_REMOTE,
                                    .rd_atomic = 8,
                                    .dest_rd_atomic = 8,
                                    .timeout = 14,
                                    .retry_cnt = 7,
                                    .rnr_retry = 7,
                                    .min_rnr_timer = 1};

static void open_qps(struct side *side)
{
    struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 64, .max_sge = PLAN_SGES}};
    side->srq = ibv_create_srq(side->dev.pd, &srq_init);
    VU_TRUE(side->srq);
    for (int i = 0; i < PLAN_QPS; i++) {
        struct vu_ep_attr attr = {.send_sge = PLAN_SGES,
                                  .recv_sge = PLAN_SGES,
                                  .inline_bytes = PLAN_INLINE_BYTES,
                                  .extended = i == 1 && !side->options.plain,
                                  .srq = i == 2 ? side->srq : NULL};
        if (i == 2) { /* shares all queues with its neighbour */
            attr.send_cq = side->halves[1].ep.scq;
            attr.recv_cq = side->halves[1].ep.rcq;
        }
        vu_ep_create(&side->dev, &attr, &side->halves[i].ep);
        vu_connect(&side->halves[i].ep, side->sock, &conn);
    }
}

/* Registers what the plan says and tells the other side all keys. */
static void trade(struct side *side)
{
    struct keys mine;
    memset(&mine, 0, sizeof(mine));
    for (int buf = 0; buf < ARENA_BUFS; buf++) {
        if (side->plan.reregister[side->index][buf]) {
            if (side->arena.mrs[buf][0])
                arena_unregister(&side->arena, buf);
            arena_register(&side->arena, &side->dev, buf, side->plan.extents[side->index][buf]);
        }
        mine.addrs[buf] = (uintptr_t)side->arena.blocks[buf];
        for (int i = 0; i < 2; i++)
            mine.rkeys[buf][i] = side->arena.mrs[buf][i]->rkey;
    }
    memset(side->plan.reregister, 0, sizeof(side->plan.reregister));
    vu_put(side->sock, &mine, sizeof(mine));
    vu_get(side->sock, &side->peer, sizeof(side->peer));
}

static int fill_sges(struct side *side, const struct piece *pieces, int count, struct ibv_sge *sges)
{
    for (int i = 0; i < count; i++)
        sges[i] = (struct ibv_sge){(uintptr_t)side->arena.blocks[pieces[i].buf] + pieces[i].offset,
                                   pieces[i].len_bytes,
                                   side->arena.mrs[pieces[i].buf][pieces[i].region]->lkey};
    return count;
}

/* Inline data is sent from a copy that is spoilt as soon as the post returns. */
static int fill_inline(struct side *side, int index, const struct op *op, struct ibv_sge *sges)
{
    uint32_t at = 0;
    for (int i = 0; i < op->local_count; i++) {
        const struct piece *piece = &op->local[i];
        memcpy(side->scratch[index] + at, side->arena.blocks[piece->buf] + piece->offset,
               piece->len_bytes);
        sges[i] = (struct ibv_sge){(uintptr_t)side->scratch[index] + at, piece->len_bytes, 0};
        at += piece->len_bytes;
    }
    return op->local_count;
}

static uint64_t remote_addr(const struct side *side, const struct op *op)
{
    return op->remote.len_bytes ? side->peer.addrs[op->remote.buf] + op->remote.offset : 0;
}

static uint32_t remote_key(const struct side *side, const struct op *op)
{
    return op->remote.len_bytes ? side->peer.rkeys[op->remote.buf][op->remote.region] : 0x77;
}

static void fill_wr(struct side *side, int index, struct ibv_send_wr *wr, struct ibv_sge *sges)
{
    const struct op *op = &side->plan.ops[side->index][index];
    memset(wr, 0, sizeof(*wr));
    wr->wr_id = (uint64_t)op->qp << 32 | (uint64_t)index;
    wr->opcode = op->opcode;
    wr->send_flags = op->flags;
    wr->sg_list = sges;
    wr->num_sge = op->flags & IBV_SEND_INLINE ? fill_inline(side, index, op, sges)
                                              : fill_sges(side, op->local, op->local_count, sges);
    wr->imm_data = htonl(op->imm);
    if (op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr->wr.atomic.remote_addr = remote_addr(side, op);
        wr->wr.atomic.rkey = remote_key(side, op);
        wr->wr.atomic.compare_add = op->compare_add;
        wr->wr.atomic.swap = op->swap;
    } else {
        wr->wr.rdma.remote_addr = remote_addr(side, op);
        wr->wr.rdma.rkey = remote_key(side, op);
    }
}

static void build(struct ibv_qp_ex *qpx, const struct ibv_send_wr *wr)
{
    qpx->wr_id = wr->wr_id;
    qpx->wr_flags = wr->send_flags & ~(unsigned int)IBV_SEND_INLINE;
    uint32_t rkey = wr->wr.rdma.rkey;
    uint64_t addr = wr->wr.rdma.remote_addr;
    if (wr->opcode == IBV_WR_SEND)
        ibv_wr_send(qpx);
    else if (wr->opcode == IBV_WR_SEND_WITH_IMM)
        ibv_wr_send_imm(qpx, wr->imm_data);
    else if (wr->opcode == IBV_WR_RDMA_WRITE)
        ibv_wr_rdma_write(qpx, rkey, addr);
    else if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        ibv_wr_rdma_write_imm(qpx, rkey, addr, wr->imm_data);
    else if (wr->opcode == IBV_WR_RDMA_READ)
        ibv_wr_rdma_read(qpx, rkey, addr);
    else if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
        ibv_wr_atomic_cmp_swp(qpx, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
                              wr->wr.atomic.compare_add, wr->wr.atomic.swap);
    else
        ibv_wr_atomic_fetch_add(qpx, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
                                wr->wr.atomic.compare_add);
    if (wr->send_flags & IBV_SEND_INLINE) {
        struct ibv_data_buf bufs[PLAN_SGES];
        for (int i = 0; i < wr->num_sge; i++)
            bufs[i] = (struct ibv_data_buf){(void *)(uintptr_t)wr->sg_list[i].addr,
                                            wr->sg_list[i].length};
        ibv_wr_set_inline_data_list(qpx, (size_t)wr->num_sge, bufs);
    } else {
        ibv_wr_set_sge_list(qpx, (size_t)wr->num_sge, wr->sg_list);
    }
}

#define CHAIN_MAX 5

static void post_chain(struct side *side, struct half *half)
{
    struct ibv_send_wr wrs[CHAIN_MAX], *bad = NULL;
    struct ibv_sge sges[CHAIN_MAX][PLAN_SGES];
    int left = half->send_count - half->send_next,
        count = 1 + (int)vu_random_below(&side->own, CHAIN_MAX);
    count = count < left ? count : left;
    for (int i = 0; i < count; i++) {
        fill_wr(side, half->sends[half->send_next + i], &wrs[i], sges[i]);
        wrs[i].next = i + 1 < count ? &wrs[i + 1] : NULL;
    }
    if (half == &side->halves[1] && !side->options.plain) {
        struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(half->ep.qp);
        ibv_wr_start(qpx);
        for (int i = 0; i < count; i++)
            build(qpx, &wrs[i]);
        VU_EQ(ibv_wr_complete(qpx), 0);
    } else {
        VU_EQ(ibv_post_send(half->ep.qp, wrs, &bad), 0);
    }
    for (int i = 0; i < count; i++)
        memset(side->scratch[half->sends[half->send_next + i]], 0xdd, PLAN_INLINE_BYTES);
    half->send_next += count;
}

static void post_recvs(struct side *side, struct half *half)
{
    struct ibv_recv_wr wrs[CHAIN_MAX], *bad = NULL;
    struct ibv_sge sges[CHAIN_MAX][PLAN_SGES];
    int left = half->recv_count - half->recv_next,
        count = 1 + (int)vu_random_below(&side->own, CHAIN_MAX);
    count = count < left ? count : left;
    for (int i = 0; i < count; i++) {
        int index = half->recvs[half->recv_next + i];
        const struct op *op = &side->plan.ops[!side->index][index];
        wrs[i] =
            (struct ibv_recv_wr){.wr_id = (uint64_t)op->qp << 32 | RECV_BIT | (uint64_t)index,
                                 .next = i + 1 < count ? &wrs[i + 1] : NULL,
                                 .sg_list = sges[i],
                                 .num_sge = fill_sges(side, op->recv, op->recv_count, sges[i])};
    }
    VU_EQ(half == &side->halves[2] ? ibv_post_srq_recv(side->srq, wrs, &bad)
                                   : ibv_post_recv(half->ep.qp, wrs, &bad),
          0);
    half->recv_next += count;
}

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_RDMA_READ                                ? IBV_WC_RDMA_READ
           : opcode == IBV_WR_ATOMIC_CMP_AND_SWP                     ? IBV_WC_COMP_SWAP
           : opcode == IBV_WR_ATOMIC_FETCH_AND_ADD                   ? IBV_WC_FETCH_ADD
           : opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_SEND
                                                                     : IBV_WC_RDMA_WRITE;
}

static void check_send(struct side *side, struct half *half, const struct ibv_wc *wc)
{
    const struct op *op;
    do { /* pass over unsignaled ones: this completion accounts for them */
        VU_CHECK(half->send_done < half->send_next, "a completion too many: wr 0x%llx",
                 (unsigned long long)wc->wr_id);
        op = &side->plan.ops[side->index][half->sends[half->send_done++]];
    } while (!(op->flags & IBV_SEND_SIGNALED));
    VU_EQ(wc->wr_id & 0xffffffff, half->sends[half->send_done - 1]);
    VU_EQ(wc->opcode, wc_opcode(op->opcode));
    if (wc->opcode == IBV_WC_RDMA_READ || wc->opcode == IBV_WC_FETCH_ADD ||
        wc->opcode == IBV_WC_COMP_SWAP)
        VU_EQ(wc->byte_len, op->len_bytes);
}

static void check_recv(struct side *side, struct half *half, const struct ibv_wc *wc)
{
    VU_TRUE(half->recv_done < half->recv_next);
    int index = half->recvs[half->recv_done++];
    const struct op *op = &side->plan.ops[!side->index][index];
    VU_EQ(wc->wr_id & 0x7fffffff, index);
    bool written = op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    VU_EQ(wc->opcode, written ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
    VU_EQ(wc->byte_len, op->len_bytes);
    bool with_imm = written || op->opcode == IBV_WR_SEND_WITH_IMM;
    VU_EQ(wc->wc_flags & IBV_WC_WITH_IMM, with_imm ? IBV_WC_WITH_IMM : 0);
    if (with_imm)
        VU_EQ(ntohl(wc->imm_data), op->imm);
}

static void poll_all(struct side *side)
{
    struct ibv_cq *cqs[4] = {side->halves[0].ep.scq, side->halves[0].ep.rcq, side->halves[1].ep.scq,
                             side->halves[1].ep.rcq};
    struct ibv_wc wcs[4];
    for (int c = 0; c < 4; c++) {
        int n = ibv_poll_cq(cqs[c], 1 + (int)vu_random_below(&side->own, 4), wcs);
        VU_TRUE(n >= 0);
        for (int i = 0; i < n; i++) {
            const struct ibv_wc *wc = &wcs[i];
            VU_CHECK(wc->status == IBV_WC_SUCCESS, "wr 0x%llx: %s", (unsigned long long)wc->wr_id,
                     ibv_wc_status_str(wc->status));
            int qp = (int)(wc->wr_id >> 32);
            VU_TRUE(qp < PLAN_QPS);
            VU_EQ(wc->qp_num, side->halves[qp].ep.qp->qp_num);
            VU_EQ(c % 2, wc->wr_id & RECV_BIT ? 1 : 0);
            (wc->wr_id & RECV_BIT ? check_recv : check_send)(side, &side->halves[qp], wc);
        }
    }
}

static bool round_done(const struct side *side)
{
    for (int i = 0; i < PLAN_QPS; i++) {
        const struct half *half = &side->halves[i];
        if (half->send_done < half->send_count || half->recv_done < half->recv_count)
            return false;
    }
    return true;
}

static void sort_ops(struct side *side)
{
    for (int i = 0; i < PLAN_QPS; i++) {
        struct half *half = &side->halves[i];
        half->send_count = half->send_next = half->send_done = 0;
        half->recv_count = half->recv_next = half->recv_done = 0;
    }
    for (int i = 0; i < side->plan.op_count[side->index]; i++) {
        struct half *half = &side->halves[side->plan.ops[side->index][i].qp];
        half->sends[half->send_count++] = i;
    }
    for (int i = 0; i < side->plan.op_count[!side->index]; i++) {
        const struct op *op = &side->plan.ops[!side->index][i];
        struct half *half = &side->halves[op->qp];
        if (op->takes_receive)
            half->recvs[half->recv_count++] = i;
    }
}

__attribute__((noreturn)) static void fail_stuck(const struct side *side)
{
    for (int i = 0; i < PLAN_QPS; i++) {
        const struct half *half = &side->halves[i];
        fprintf(stderr, "  side %c qp %d: sends %d done %d posted %d in all, receives %d %d %d\n",
                'a' + side->index, i, half->send_done, half->send_next, half->send_count,
                half->recv_done, half->recv_next, half->recv_count);
        for (int n = half->send_done; n < half->send_count; n++) {
            const struct op *op = &side->plan.ops[side->index][half->sends[n]];
            fprintf(stderr, "    waits for op %d: opcode %d, %u bytes, flags 0x%x\n",
                    half->sends[n], (int)op->opcode, op->len_bytes, op->flags);
        }
    }
    VU_FAIL("stuck for %d ms", ROUND_TIMEOUT_MS);
}

/* iWARP has no RNR: the receives are there before what takes them comes. */
static void post_all_recvs(struct side *side)
{
    for (int i = 0; i < PLAN_QPS; i++)
        while (side->halves[i].recv_next < side->halves[i].recv_count)
            post_recvs(side, &side->halves[i]);
    vu_barrier(side->sock);
}

/* A WRITE over iWARP is complete when TCP has it, and placed when a READ behind it is answered. */
static void wait_until_placed(struct side *side)
{
    for (int i = 0; i < PLAN_QPS; i++) {
        struct ibv_send_wr read = {.wr_id = PLACED_ID,
                                   .opcode = IBV_WR_RDMA_READ,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma.rkey = 0x77},
                           *bad;
        VU_EQ(ibv_post_send(side->halves[i].ep.qp, &read, &bad), 0);
        struct ibv_wc wc;
        VU_EQ(vu_poll(side->halves[i].ep.scq, &wc, 1, PLACED_MS), 1);
        VU_EQ(wc.status, IBV_WC_SUCCESS);
        VU_EQ(wc.wr_id, PLACED_ID);
    }
}

static void run_round(struct side *side)
{
    plan_draw(&side->plan, side->index, &side->arena);
    trade(side);
    sort_ops(side);
    if (side->plan.is_iwarp)
        post_all_recvs(side);
    uint64_t deadline = vu_now_ms() + ROUND_TIMEOUT_MS;
    while (!round_done(side)) {
        struct half *half = &side->halves[vu_random_below(&side->own, PLAN_QPS)];
        uint32_t act = vu_random_below(&side->own, 4);
        if (act == 0 && half->send_next < half->send_count)
            post_chain(side, half);
        else if (act == 1 && half->recv_next < half->recv_count)
            post_recvs(side, half);
        else
            poll_all(side);
        if (act == 3)
            sched_yield();
        if (vu_now_ms() > deadline)
            fail_stuck(side);
    }
    if (side->plan.is_iwarp)
        wait_until_placed(side);
    vu_barrier(side->sock); /* the other side's requests are done as well */
    poll_all(side);         /* a completion too many fails there */
    plan_apply(&side->plan);
    plan_compare(&side->plan, side->index, &side->arena);
    uint64_t mine = plan_digest_arena(&side->arena), other;
    vu_put(side->sock, &mine, sizeof(mine));
    vu_get(side->sock, &other, sizeof(other));
    VU_EQ(other, plan_digest_shadow(&side->plan, !side->index));
}

static void run_side(int sock, const struct options *options, int index)
{
    struct side *side = calloc(1, sizeof(*side));
    VU_CHECK(side, "out of memory");
    char name[80];
    side->sock = sock;
    side->index = index;
    side->options = *options;
    side->own.state = options->seed * 2 + (uint64_t)index;
    arena_open(&side->arena);
    vu_dev_open(&side->dev);
    side->options.plain |= vu_is_iwarp(&side->dev); /* the builders are asked for atomics, too */
    plan_open(&side->plan, options->seed, options->len_max, vu_is_iwarp(&side->dev));
    open_qps(side);
    uint64_t end = vu_now_ms() + (uint64_t)options->seconds * 1000;
    bool more = true;
    for (side->round = 0; side->round < options->rounds && more; side->round++) {
        snprintf(name, sizeof(name), "--seed %llu round %d side %c",
                 (unsigned long long)options->seed, side->round, 'a' + index);
        vu_set_side(name);
        run_round(side);
        more = !options->seconds || vu_now_ms() < end;
        if (index == 0)
            vu_put(sock, &more, sizeof(more));
        else
            vu_get(sock, &more, sizeof(more));
    }
    if (index == 0)
        printf("seed %llu: %d rounds\n", (unsigned long long)options->seed, side->round);
    for (int i = PLAN_QPS - 1; i >= 0; i--)
        vu_ep_destroy(&side->halves[i].ep);
    VU_EQ(ibv_destroy_srq(side->srq), 0);
    for (int buf = 0; buf < ARENA_BUFS; buf++)
        arena_unregister(&side->arena, buf);
    vu_dev_close(&side->dev);
    plan_compare(&side->plan, index, &side->arena); /* still so without the regions */
    arena_close(&side->arena);
    plan_close(&side->plan);
    free(side);
}

static void side_a(int sock, void *arg)
{
    run_side(sock, arg, 0);
}

static void side_b(int sock, void *arg)
{
    run_side(sock, arg, 1);
}

int main(int argc, char **argv)
{
    struct options options = {.seed = (uint64_t)time(NULL), .rounds = 1000000, .len_max = 1 << 20};
    enum vu_mode mode = VU_PROCESSES;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--threads") == 0)
            mode = VU_THREADS;
        else if (strcmp(argv[i], "--plain") == 0)
            options.plain = true;
        else if (strcmp(argv[i], "--seed") == 0)
            options.seed = strtoull(value, NULL, 0), i++;
        else if (strcmp(argv[i], "--rounds") == 0)
            options.rounds = atoi(value), i++;
        else if (strcmp(argv[i], "--seconds") == 0)
            options.seconds = atoi(value), i++;
        else if (strcmp(argv[i], "--max") == 0)
            options.len_max = (uint32_t)strtoul(value, NULL, 0), i++;
        else
            VU_FAIL("usage: integrity [--threads] [--plain] [--seed N] [--rounds N] [--seconds N] "
                    "[--max BYTES]");
    }
    int rc =
        vu_run_pair(mode, side_a, side_b, &options, options.seconds ? options.seconds + 60 : 600);
    if (rc == 1)
        fprintf(stderr, "integrity failed with --seed %llu\n", (unsigned long long)options.seed);
    if (rc == VU_SKIPPED)
        vu_skip("see above");
    return rc;
}
