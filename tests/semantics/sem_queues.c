/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: how much fits into queues, what is refused at posting, which requests report completion,
 * inline data. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sem.h"

#define INLINE_BYTES 200

/* The other side of cases that only need a connected QP; param receives of 512 bytes are posted. */
static void receiver_b(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.ep = {.recv_wr = 256}};
    rig_open(&rig, sock, &attr);
    for (int i = 0; i < param; i++)
        rig_recv(&rig, (uint64_t)i, (uint32_t)i * 512, 512);
    vu_barrier(sock);
    for (int i = 0; i < param; i++)
        vu_expect(rig.ep.rcq, (uint64_t)i, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void chain(struct ibv_send_wr *wrs, struct ibv_sge *sge, unsigned int n, uint64_t first_id)
{
    memset(wrs, 0, n * sizeof(*wrs));
    for (unsigned int i = 0; i < n; i++) {
        wrs[i].wr_id = first_id + i;
        wrs[i].next = i + 1 < n ? &wrs[i + 1] : NULL;
        wrs[i].sg_list = sge;
        wrs[i].num_sge = 1;
        wrs[i].opcode = IBV_WR_SEND;
        wrs[i].send_flags = IBV_SEND_SIGNALED;
    }
}

/* A full send queue takes what fits of a list, at least what was granted, and names the first it
 * did not take. */
static void sq_full_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.send_wr = 8}};
    rig_open(&rig, sock, &attr);
    unsigned int depth = rig.ep.send_wr, count = 4 * depth + 64;
    VU_TRUE(depth >= 8 && depth < 256);
    struct ibv_sge sge = {(uintptr_t)rig.buf, 64, rig.mr->lkey};
    struct ibv_send_wr *wrs = calloc(count, sizeof(*wrs)), *bad = NULL;
    chain(wrs, &sge, count, 0);
    VU_EQ(ibv_post_send(rig.ep.qp, wrs, &bad), ENOMEM); /* no receive is posted: nothing drains */
    VU_TRUE(bad >= wrs && bad < wrs + count);
    unsigned int taken = (unsigned int)(bad - wrs);
    VU_CHECK(taken >= depth, "%u requests fit into a queue of %u", taken, depth);
    VU_EQ(ibv_post_send(rig.ep.qp, &wrs[taken], &bad), ENOMEM);
    VU_TRUE(bad == &wrs[taken]);
    vu_ep_to(&rig.ep, IBV_QPS_ERR);
    for (unsigned int i = 0; i < taken; i++)
        vu_expect(rig.ep.scq, i, IBV_WC_WR_FLUSH_ERR);
    vu_expect_none(rig.ep.scq, 10);
    free(wrs);
    vu_barrier(sock);
    vu_barrier(sock);
    rig_close(&rig);
}

static void rq_full_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.recv_wr = 8}};
    rig_open(&rig, sock, &attr);
    unsigned int depth = rig.ep.recv_wr, count = 4 * depth + 64;
    VU_TRUE(depth >= 8 && depth < 256);
    struct ibv_sge sge = {(uintptr_t)rig.buf, 64, rig.mr->lkey};
    struct ibv_recv_wr *wrs = calloc(count, sizeof(*wrs)), *bad = NULL;
    for (unsigned int i = 0; i < count; i++)
        wrs[i] = (struct ibv_recv_wr){
            .wr_id = i, .next = i + 1 < count ? &wrs[i + 1] : NULL, .sg_list = &sge, .num_sge = 1};
    VU_EQ(ibv_post_recv(rig.ep.qp, wrs, &bad), ENOMEM);
    VU_TRUE(bad >= wrs + depth && bad < wrs + count);
    unsigned int taken = (unsigned int)(bad - wrs);
    vu_ep_to(&rig.ep, IBV_QPS_ERR);
    for (unsigned int i = 0; i < taken; i++)
        vu_expect(rig.ep.rcq, i, IBV_WC_WR_FLUSH_ERR);
    vu_expect_none(rig.ep.rcq, 10);
    free(wrs);
    vu_barrier(sock);
    vu_barrier(sock);
    rig_close(&rig);
}

/* Refused at posting: nothing of the bad request or after it is taken, what came before is. */
static void bad_request_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.inline_bytes = 64}};
    rig_open(&rig, sock, &attr);
    vu_barrier(sock);
    struct ibv_qp_attr qp_attr;
    struct ibv_qp_init_attr init;
    VU_EQ(ibv_query_qp(rig.ep.qp, &qp_attr, IBV_QP_CAP, &init), 0);
    unsigned int sge_max = init.cap.max_send_sge;
    struct ibv_sge sges[64];
    VU_TRUE(sge_max < 64);
    for (int i = 0; i < 64; i++)
        sges[i] = (struct ibv_sge){(uintptr_t)rig.buf, 1, rig.mr->lkey};
    struct ibv_send_wr wrs[3], *bad;

    chain(wrs, sges, 3, 0);
    wrs[1].num_sge = (int)sge_max + 1;
    VU_TRUE(ibv_post_send(rig.ep.qp, wrs, &bad) != 0);
    VU_TRUE(bad == &wrs[1]);
    vu_expect(rig.ep.scq, 0, IBV_WC_SUCCESS);

    chain(wrs, sges, 3, 10);
    wrs[1].opcode = (enum ibv_wr_opcode)63;
    VU_TRUE(ibv_post_send(rig.ep.qp, wrs, &bad) != 0);
    VU_TRUE(bad == &wrs[1]);
    vu_expect(rig.ep.scq, 10, IBV_WC_SUCCESS);

    chain(wrs, sges, 3, 20);
    sges[0].length = rig.ep.inline_bytes + 1;
    wrs[0].send_flags |= IBV_SEND_INLINE;
    VU_TRUE(ibv_post_send(rig.ep.qp, wrs, &bad) != 0);
    VU_TRUE(bad == &wrs[0]);
    vu_expect_none(rig.ep.scq, 10);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void sig_all_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.sig_all = true}};
    rig_open(&rig, sock, &attr);
    vu_barrier(sock);
    for (unsigned int i = 0; i < 10; i++) {
        struct vu_send send = rig_send(&rig, i < 5 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, i, 0, 32);
        send.flags = 0;
        rig_post(&rig, &send);
    }
    for (unsigned int i = 0; i < 10; i++)
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

/* One completion accounts for all unsignaled requests before it: the queue can be filled again and
 * again. */
static void unsignaled_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.send_wr = 16, .cqe = 16}};
    rig_open(&rig, sock, &attr);
    vu_barrier(sock);
    unsigned int depth = rig.ep.send_wr;
    for (unsigned int round = 0; round < 50; round++) {
        for (unsigned int i = 0; i < depth; i++) {
            static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                         IBV_WR_ATOMIC_FETCH_AND_ADD};
            struct vu_send send = rig_send(&rig, opcodes[i % 3], round << 16 | i, 0, 8);
            send.flags = i == depth - 1 ? IBV_SEND_SIGNALED : 0;
            rig_post(&rig, &send);
        }
        vu_expect(rig.ep.scq, round << 16 | (depth - 1), IBV_WC_SUCCESS);
    }
    vu_expect_none(rig.ep.scq, 10);
    vu_barrier(sock);
    rig_close(&rig);
}

/* An error is reported whether or not it was asked for. */
static void unsignaled_error_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    for (unsigned int i = 0; i < 6; i++) {
        struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, i, 0, 64);
        send.flags = 0;
        if (i == 3)
            send.rkey ^= 0x5a5a5a00;
        rig_post(&rig, &send);
    }
    vu_expect(rig.ep.scq, 3, IBV_WC_REM_ACCESS_ERR);
    vu_expect(rig.ep.scq, 4, IBV_WC_WR_FLUSH_ERR);
    vu_expect(rig.ep.scq, 5, IBV_WC_WR_FLUSH_ERR);
    vu_expect_none(rig.ep.scq, 10);
    vu_barrier(sock);
    rig_close(&rig);
}

/* Inline data is the program's again when the post returns, also when the request has to wait for a
 * receive; it needs no key. */
static void inline_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.inline_bytes = INLINE_BYTES}};
    rig_open(&rig, sock, &attr);
    uint8_t on_stack[INLINE_BYTES];
    for (unsigned int i = 0; i < 20; i++) {
        memset(on_stack, (int)i, sizeof(on_stack));
        struct vu_send send =
            rig_send(&rig, i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, i, 8192 + i * 256, 0);
        send.addr = on_stack;
        send.len_bytes = INLINE_BYTES;
        send.lkey = 0xdeadbeef;
        send.flags |= IBV_SEND_INLINE;
        rig_post(&rig, &send);
        memset(on_stack, 0xee, sizeof(on_stack));
    }
    vu_barrier(sock);
    for (unsigned int i = 0; i < 20; i++)
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void inline_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    for (unsigned int i = 0; i < 20; i += 2)
        rig_recv(&rig, i, i * 256, 256);
    for (unsigned int i = 0; i < 20; i += 2) {
        struct ibv_wc wc = vu_expect(rig.ep.rcq, i, IBV_WC_SUCCESS);
        VU_EQ(wc.byte_len, INLINE_BYTES);
        rig_bytes(&rig, i * 256, INLINE_BYTES, (uint8_t)i);
        rig_bytes(&rig, i * 256 + INLINE_BYTES, 256 - INLINE_BYTES, 0);
    }
    vu_barrier(sock);
    for (unsigned int i = 1; i < 20; i += 2)
        rig_bytes(&rig, 8192 + i * 256, INLINE_BYTES, (uint8_t)i);
    rig_close(&rig);
}

/* Inline data gathered from several places. */
static void inline_gather_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.inline_bytes = 64}};
    rig_open(&rig, sock, &attr);
    uint8_t parts[3][16];
    struct ibv_sge sges[3];
    for (int i = 0; i < 3; i++) {
        memset(parts[i], 0x11 * (i + 1), sizeof(parts[i]));
        sges[i] = (struct ibv_sge){(uintptr_t)parts[i], 16, 0};
    }
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = sges,
                             .num_sge = 3,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED,
                             .wr.rdma = {rig.peer.addr + 1, rig.peer.rkey}},
                       *bad;
    VU_EQ(ibv_post_send(rig.ep.qp, &wr, &bad), 0);
    memset(parts, 0, sizeof(parts));
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void inline_gather_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    rig_bytes(&rig, 0, 1, 0);
    rig_bytes(&rig, 1, 16, 0x11);
    rig_bytes(&rig, 17, 16, 0x22);
    rig_bytes(&rig, 33, 16, 0x33);
    rig_bytes(&rig, 49, 64, 0);
    rig_close(&rig);
}

const struct sem_case sem_queues[] = {
    {"post_send__full_queue", sq_full_a, receiver_b, 0},
    {"post_recv__full_queue", rq_full_a, receiver_b, 0},
    {"post_send__bad_request_in_list", bad_request_a, receiver_b, 2},
    {"signaling__sq_sig_all", sig_all_a, receiver_b, 5},
    {"signaling__one_for_many", unsignaled_a, receiver_b, 0},
    {"signaling__errors_always", unsignaled_error_a, receiver_b, 0},
    {"inline__free_on_return", inline_a, inline_b, 0},
    {"inline__gathered", inline_gather_a, inline_gather_b, 0},
    {0},
};
