/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: what may be seen in which order. IBTA Vol1 9.5 and 10.8.3.3 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "sem.h"

#define ROUNDS 300

/* A fenced SEND or WRITE waits for the READ before it, so it may send on what the READ brings. */
static void fence_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    for (unsigned int i = 0; i < ROUNDS; i++) {
        vu_barrier(sock);
        struct vu_send read = rig_send(&rig, IBV_WR_RDMA_READ, 1, 0, 16384);
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, 2, 0, 16384);
        struct vu_send write = rig_send(&rig, IBV_WR_RDMA_WRITE, 3, 0, 16384);
        read.flags = 0;
        send.flags = IBV_SEND_FENCE;
        write.flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED;
        write.remote += 65536;
        rig_post(&rig, &read);
        rig_post(&rig, &send);
        rig_post(&rig, &write);
        vu_expect(rig.ep.scq, 3, IBV_WC_SUCCESS);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

static void fence_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_random random = {5};
    for (unsigned int i = 0; i < ROUNDS; i++) {
        vu_random_fill(&random, rig.buf, 16384);
        rig_recv(&rig, i, 32768, 16384);
        vu_barrier(sock);
        vu_expect(rig.ep.rcq, i, IBV_WC_SUCCESS);
        VU_EQ(memcmp(rig.buf, rig.buf + 32768, 16384), 0);
        vu_barrier(sock);
        /* There a WRITE is complete when it was sent. */
        for (int ms = 0; vu_is_iwarp(&rig.dev) && ms < 5000; ms++) {
            if (!memcmp(rig.buf, rig.buf + 65536, 16384))
                break;
            vu_sleep_ms(1);
        }
        VU_EQ(memcmp(rig.buf, rig.buf + 65536, 16384), 0);
    }
    rig_close(&rig);
}

/* Once a SEND or immediate has arrived, every WRITE posted before it on the QP can be seen; a READ
 * after a WRITE sees it too. */
static void visible_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.send_wr = 64}};
    rig_open(&rig, sock, &attr);
    struct vu_random random = {7};
    for (unsigned int i = 0; i < ROUNDS; i++) {
        vu_barrier(sock);
        uint32_t writes = 1 + vu_random_below(&random, 8),
                 len = 1 + vu_random_below(&random, 16384);
        memset(rig.buf, (int)i, 16384);
        for (uint32_t w = 0; w < writes; w++) {
            struct vu_send write = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, len);
            write.flags = 0;
            write.remote += w * 16384;
            rig_post(&rig, &write);
        }
        struct vu_send read = rig_send(&rig, IBV_WR_RDMA_READ, 2, 200 * 1024, 64);
        read.remote = rig.peer.addr + (writes - 1) * 16384;
        read.len_bytes = len < 64 ? len : 64;
        rig_post(&rig, &read);
        uint32_t shape[2] = {writes, len};
        memcpy(rig.buf + 220 * 1024, shape, sizeof(shape));
        struct vu_send send = rig_send(
            &rig, i % 2 || vu_is_iwarp(&rig.dev) ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM, 3,
            220 * 1024, sizeof(shape));
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
        rig_bytes(&rig, 200 * 1024, read.len_bytes, (uint8_t)i);
        vu_expect(rig.ep.scq, 3, IBV_WC_SUCCESS);
    }
    rig_close(&rig);
}

static void visible_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    for (unsigned int i = 0; i < ROUNDS; i++) {
        rig_recv(&rig, i, 220 * 1024, 64);
        vu_barrier(sock);
        vu_expect(rig.ep.rcq, i, IBV_WC_SUCCESS);
        uint32_t shape[2];
        memcpy(shape, rig.buf + 220 * 1024, sizeof(shape));
        for (uint32_t w = 0; w < shape[0]; w++)
            rig_bytes_now(&rig, w * 16384, shape[1], (uint8_t)i);
    }
    rig_close(&rig);
}

#define ADDS 4000

/* Additions from both sides through different QPs and through the owner's own loopback QP all
 * count. */
static void adders(int sock, bool owner)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_ep own;
    vu_ep_create(&rig.dev, NULL, &own);
    if (owner) {
        struct vu_peer self = vu_ep_self(&own);
        vu_ep_init(&own, &vu_conn_default);
        vu_ep_rtr(&own, &self, &vu_conn_default);
        vu_ep_rts(&own, &vu_conn_default);
    }
    vu_barrier(sock);
    struct ibv_qp *qp = owner ? own.qp : rig.ep.qp;
    struct ibv_cq *cq = owner ? own.scq : rig.ep.scq;
    for (unsigned int i = 0; i < ADDS; i++) {
        struct vu_send add = rig_send(&rig, IBV_WR_ATOMIC_FETCH_AND_ADD, i, 64, 8);
        add.remote = owner ? (uintptr_t)rig.buf : rig.peer.addr;
        add.rkey = owner ? rig.mr->rkey : rig.peer.rkey;
        add.compare_add = 1;
        add.flags = i % 16 == 15 ? IBV_SEND_SIGNALED : 0;
        VU_EQ(vu_post_send(qp, &add), 0);
        if (i % 16 == 15)
            vu_expect(cq, i, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    if (owner) {
        uint64_t sum;
        memcpy(&sum, rig.buf, 8);
        VU_EQ(sum, 2 * ADDS);
    }
    vu_ep_destroy(&own);
    rig_close(&rig);
}

static void adders_a(int sock, int param)
{
    (void)param;
    adders(sock, false);
}

static void adders_b(int sock, int param)
{
    (void)param;
    adders(sock, true);
}

/* A program with both queues on one CQ finds the SEND there before the reply to it, however late it
 * polls: the peer had acknowledged it when its program saw it. */
static void reply_a(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    const struct vu_ep first = rig.ep;
    vu_ep_create(&rig.dev, &(struct vu_ep_attr){.send_cq = first.scq, .recv_cq = first.scq},
                 &rig.ep);
    vu_connect(&rig.ep, sock, NULL);
    for (unsigned int i = 0; i < ROUNDS / 10; i++) {
        rig_recv(&rig, 2, 65536, (uint32_t)param);
        vu_barrier(sock);
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, (uint32_t)param);
        rig_post(&rig, &send);
        vu_barrier(sock); /* the reply is posted */
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
        vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
        vu_barrier(sock);
    }
    vu_ep_destroy(&rig.ep);
    rig.ep = first;
    rig_close(&rig);
}

static void reply_b(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_ep second;
    rig_second(&rig, &second);
    const struct vu_ep first = rig.ep;
    rig.ep = second;
    for (unsigned int i = 0; i < ROUNDS / 10; i++) {
        rig_recv(&rig, 2, 65536, (uint32_t)param);
        vu_barrier(sock);
        vu_expect(rig.ep.rcq, 2, IBV_WC_SUCCESS);
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, (uint32_t)param);
        rig_post(&rig, &send);
        vu_barrier(sock);
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
        vu_barrier(sock);
    }
    vu_ep_destroy(&rig.ep);
    rig.ep = first;
    rig_close(&rig);
}

/* The last byte of a WRITE is polled by the target's CPU, as latency tests do: the bytes before it
 * are there by then, up to a page. */
static void poll_memory_a(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    for (unsigned int i = 1; i <= ROUNDS; i++) {
        memset(rig.buf, (int)(i % 250 + 1), (size_t)param);
        struct vu_send write = rig_send(&rig, IBV_WR_RDMA_WRITE, i, 0, (uint32_t)param);
        rig_post(&rig, &write);
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

static void poll_memory_b(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    for (unsigned int i = 1; i <= ROUNDS; i++) {
        volatile uint8_t *last = rig.buf + param - 1;
        uint8_t wanted = (uint8_t)(i % 250 + 1);
        uint64_t deadline = vu_now_ms() + 20000;
        while (*last != wanted)
            VU_CHECK(vu_now_ms() < deadline, "the WRITE of round %u is not seen", i);
        atomic_thread_fence(memory_order_acquire);
        rig_bytes(&rig, 0, (uint32_t)param, wanted);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

/* A storage target's answers: WRITE, SEND, WRITE, SEND in one list. The data that a message tells
 * of is there when it comes, and messages come in order, each whole. */
#define ANSWERS 40u
#define ANSWER_AT (192 * 1024u)

/* The bytes of answer `i` in a round: of its data, and of its message. */
static uint32_t message_bytes(unsigned int round, uint32_t i, int longest)
{
    return 1 + (round * 7 + i * (round % 3)) % (uint32_t)longest;
}

static void answer_list(struct rig *rig, unsigned int round, uint32_t count, uint32_t data_bytes,
                        int longest)
{
    struct ibv_send_wr *wrs = calloc(2 * ANSWERS, sizeof(*wrs)), *bad;
    struct ibv_sge *sges = calloc(2 * ANSWERS, sizeof(*sges));
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = ANSWER_AT + i * 256;
        memset(rig->buf + i * 4096, (int)(round + i), data_bytes);
        memset(rig->buf + at, (int)(round + i + 1), 256);
        sges[2 * i] = (struct ibv_sge){(uintptr_t)rig->buf + i * 4096, data_bytes, rig->mr->lkey};
        sges[2 * i + 1] = (struct ibv_sge){(uintptr_t)rig->buf + at,
                                           message_bytes(round, i, longest), rig->mr->lkey};
        wrs[2 * i].opcode = IBV_WR_RDMA_WRITE;
        wrs[2 * i].wr.rdma.remote_addr = rig->peer.addr + i * 4096;
        wrs[2 * i].wr.rdma.rkey = rig->peer.rkey;
        wrs[2 * i + 1].opcode = IBV_WR_SEND;
    }
    for (uint32_t i = 0; i < 2 * count; i++) {
        wrs[i].sg_list = &sges[i];
        wrs[i].num_sge = 1;
        wrs[i].next = i + 1 < 2 * count ? &wrs[i + 1] : NULL;
    }
    wrs[2 * count - 1].send_flags = IBV_SEND_SIGNALED;
    VU_EQ(ibv_post_send(rig->ep.qp, wrs, &bad), 0);
    free(sges);
    free(wrs);
}

static void answers_a(int sock, int longest)
{
    struct rig rig;
    const struct rig_attr attr = {.ep = {.send_wr = 2 * ANSWERS}};
    rig_open(&rig, sock, &attr);
    struct vu_random random = {11};
    for (unsigned int round = 0; round < ROUNDS; round++) {
        const uint32_t count = 1 + vu_random_below(&random, ANSWERS),
                       data_bytes = 257 + vu_random_below(&random, 4096 - 256);
        const uint32_t shape[2] = {count, data_bytes};
        rig_recv(&rig, round, 250 * 1024, 64);
        memcpy(rig.buf + 251 * 1024, shape, sizeof(shape));
        struct vu_send first = rig_send(&rig, IBV_WR_SEND, 0, 251 * 1024, sizeof(shape));
        vu_barrier(sock);
        rig_post(&rig, &first);
        vu_expect(rig.ep.rcq, round, IBV_WC_SUCCESS); /* the request */
        answer_list(&rig, round, count, data_bytes, longest);
        vu_expect(rig.ep.scq, 0, IBV_WC_SUCCESS);
        vu_expect(rig.ep.scq, 0, IBV_WC_SUCCESS);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

static void answers_b(int sock, int longest)
{
    struct rig rig;
    const struct rig_attr attr = {.ep = {.recv_wr = 1 + ANSWERS}};
    rig_open(&rig, sock, &attr);
    for (unsigned int round = 0; round < ROUNDS; round++) {
        uint32_t shape[2];
        rig_recv(&rig, 1000, 251 * 1024, 64);
        vu_barrier(sock);
        vu_expect(rig.ep.rcq, 1000, IBV_WC_SUCCESS);
        memcpy(shape, rig.buf + 251 * 1024, sizeof(shape));
        for (uint32_t i = 0; i < shape[0]; i++)
            rig_recv(&rig, i, ANSWER_AT + i * 256, 256);
        struct vu_send request = rig_send(&rig, IBV_WR_SEND, round, 0, 1);
        rig_post(&rig, &request);
        for (uint32_t i = 0; i < shape[0]; i++) {
            const uint32_t len = message_bytes(round, i, longest);
            const struct ibv_wc wc = vu_expect(rig.ep.rcq, i, IBV_WC_SUCCESS);
            VU_EQ(wc.byte_len, len);
            rig_bytes(&rig, ANSWER_AT + i * 256, len, (uint8_t)(round + i + 1));
            rig_bytes(&rig, i * 4096, shape[1], (uint8_t)(round + i));
        }
        vu_expect(rig.ep.scq, round, IBV_WC_SUCCESS);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

const struct sem_case sem_order[] = {
    {"order__fence_waits_for_read", fence_a, fence_b, 0},
    {"order__write_before_send_is_visible", visible_a, visible_b, 0},
    {"order__atomics_from_both_sides", adders_a, adders_b, 0},
    {"order__answers_in_a_list_16", answers_a, answers_b, 16},
    {"order__answers_in_a_list_256", answers_a, answers_b, 256}, /* with joint packets that fill */
    {"order__send_completes_before_its_reply_8", reply_a, reply_b, 8},
    {"order__send_completes_before_its_reply_1400", reply_a, reply_b, 1400}, /* two packets, */
    {"order__send_completes_before_its_reply_5000", reply_a, reply_b, 5000}, /* by their MTU */
    {"order__send_completes_before_its_reply_16384", reply_a, reply_b, 16384},
    {"order__last_byte_polled_8", poll_memory_a, poll_memory_b, 8},
    {"order__last_byte_polled_256", poll_memory_a, poll_memory_b, 256},
    {0},
};
