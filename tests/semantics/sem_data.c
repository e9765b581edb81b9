/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: what completions say of data: lengths, immediates, invalidation, atomics' results; both
 * posting and polling interfaces. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sem.h"

static void lengths_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    static const uint32_t sizes[] = {0, 1, 227, 228, 229, 4096, 65536};
    for (unsigned int i = 0; i < 7; i++) {
        struct vu_send send =
            rig_send(&rig, i % 2 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, i, 0, sizes[i]);
        send.imm = 0xabc0 + i;
        rig_post(&rig, &send);
        VU_EQ(vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
    }
    for (unsigned int i = 0; i < 7; i++) {
        struct vu_send imm = rig_send(&rig, IBV_WR_RDMA_WRITE_WITH_IMM, 10 + i, 0, sizes[i]);
        imm.imm = 0xdef0 + i;
        rig_post(&rig, &imm);
        VU_EQ(vu_expect(rig.ep.scq, 10 + i, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
        struct vu_send read = rig_send(&rig, IBV_WR_RDMA_READ, 20 + i, 0, sizes[i]);
        rig_post(&rig, &read);
        struct ibv_wc wc = vu_expect(rig.ep.scq, 20 + i, IBV_WC_SUCCESS);
        VU_EQ(wc.opcode, IBV_WC_RDMA_READ);
        VU_EQ(wc.byte_len, sizes[i]);
    }
    struct vu_send add = rig_send(&rig, IBV_WR_ATOMIC_FETCH_AND_ADD, 30, 128 * 1024, 8);
    rig_post(&rig, &add);
    struct ibv_wc wc = vu_expect(rig.ep.scq, 30, IBV_WC_SUCCESS);
    VU_EQ(wc.opcode, IBV_WC_FETCH_ADD);
    VU_EQ(wc.byte_len, 8);
    struct vu_send cas = rig_send(&rig, IBV_WR_ATOMIC_CMP_AND_SWP, 31, 128 * 1024, 8);
    rig_post(&rig, &cas);
    wc = vu_expect(rig.ep.scq, 31, IBV_WC_SUCCESS);
    VU_EQ(wc.opcode, IBV_WC_COMP_SWAP);
    VU_EQ(wc.byte_len, 8);
    vu_barrier(sock);
    rig_close(&rig);
}

static void lengths_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.fill = 0xb5};
    rig_open(&rig, sock, &attr);
    for (unsigned int i = 0; i < 14; i++)
        rig_recv(&rig, i, 128 * 1024, 65536);
    vu_barrier(sock);
    static const uint32_t sizes[] = {0, 1, 227, 228, 229, 4096, 65536};
    for (unsigned int i = 0; i < 14; i++) {
        struct ibv_wc wc = vu_expect(rig.ep.rcq, i, IBV_WC_SUCCESS);
        bool write = i >= 7;
        VU_EQ(wc.opcode, write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
        VU_EQ(wc.byte_len, sizes[i % 7]);
        VU_EQ(wc.qp_num, rig.ep.qp->qp_num);
        bool with_imm = write || i % 2 == 0;
        VU_EQ(wc.wc_flags & IBV_WC_WITH_IMM, with_imm ? IBV_WC_WITH_IMM : 0);
        VU_EQ(wc.wc_flags & IBV_WC_WITH_INV, 0);
        if (with_imm)
            VU_EQ(ntohl(wc.imm_data), (write ? 0xdef0 : 0xabc0) + i % 7);
    }
    vu_expect_none(rig.ep.rcq, 5);
    vu_barrier(sock);
    rig_close(&rig);
}

/* A WRITE with immediate takes a receive but leaves its buffer alone. */
static void imm_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    memset(rig.buf, 0xa1, 4096);
    vu_barrier(sock);
    struct vu_send imm = rig_send(&rig, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 4096);
    rig_post(&rig, &imm);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 2, 0, 100);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void imm_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.fill = 0xb5};
    rig_open(&rig, sock, &attr);
    VU_EQ(vu_post_recv(rig.ep.qp, 10, NULL, 0, 0), 0); /* no element at all */
    rig_recv(&rig, 11, 8192, 4096);
    vu_barrier(sock);
    VU_EQ(vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS).byte_len, 4096);
    rig_bytes(&rig, 0, 4096, 0xa1); /* visible with the completion */
    VU_EQ(vu_expect(rig.ep.rcq, 11, IBV_WC_SUCCESS).byte_len, 100);
    rig_bytes(&rig, 8192, 100, 0xa1);
    rig_bytes(&rig, 8292, 4096, 0xb5);
    vu_barrier(sock);
    rig_close(&rig);
}

/* IBTA Vol1 C9-88: with length 0 neither key nor address is looked at. */
static void zero_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                 IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND};
    for (unsigned int i = 0; i < 4; i++) {
        struct vu_send send = {.opcode = opcodes[i],
                               .wr_id = i,
                               .flags = IBV_SEND_SIGNALED,
                               .remote = 0x1234567,
                               .rkey = 0xdeadbeef};
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void zero_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    rig_recv(&rig, 10, 0, 64);
    VU_EQ(vu_post_recv(rig.ep.qp, 11, NULL, 0, 0), 0);
    vu_barrier(sock);
    VU_EQ(vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS).byte_len, 0);
    VU_EQ(vu_expect(rig.ep.rcq, 11, IBV_WC_SUCCESS).byte_len, 0);
    vu_barrier(sock);
    rig_close(&rig);
}

enum inv { INV_REGION, INV_GARBAGE };

/* A plain region is not the remote's to invalidate unless the device says so: done and reported, or
 * refused on both sides. */
static void inv_a(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND_WITH_INV, 1, 0, 64);
    send.imm = param == INV_GARBAGE ? 0xdeadbe00 : rig.peer.rkey;
    int rc = vu_post_send(rig.ep.qp, &send);
    enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
    if (rc == 0) {
        struct ibv_wc wc;
        VU_EQ(vu_poll(rig.ep.scq, &wc, 1, 20000), 1);
        status = wc.status;
        if (param == INV_GARBAGE)
            VU_TRUE(status != IBV_WC_SUCCESS);
        VU_TRUE(status == IBV_WC_SUCCESS || status == IBV_WC_REM_ACCESS_ERR ||
                status == IBV_WC_REM_OP_ERR || status == IBV_WC_REM_INV_REQ_ERR);
    }
    bool done = status == IBV_WC_SUCCESS;
    vu_put(sock, &done, sizeof(done));
    if (done) { /* then the key is dead */
        struct vu_send write = rig_send(&rig, IBV_WR_RDMA_WRITE, 2, 0, 64);
        rig_post(&rig, &write);
        vu_expect(rig.ep.scq, 2, IBV_WC_REM_ACCESS_ERR);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void inv_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.fill = 0xb5};
    rig_open(&rig, sock, &attr);
    struct ibv_mr *recv_mr = vu_reg(&rig.dev, rig.buf + 65536, 4096, IBV_ACCESS_LOCAL_WRITE);
    VU_EQ(vu_post_recv(rig.ep.qp, 10, rig.buf + 65536, 4096, recv_mr->lkey), 0);
    vu_barrier(sock);
    bool done;
    vu_get(sock, &done, sizeof(done));
    if (done) {
        struct ibv_wc wc = vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS);
        VU_EQ(wc.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
        VU_EQ(wc.invalidated_rkey, rig.mr->rkey);
    }
    vu_barrier(sock);
    rig_bytes(&rig, 0, 4096, 0xb5);
    VU_EQ(ibv_dereg_mr(recv_mr), 0);
    rig_close(&rig);
}

static uint64_t load64(const void *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

/* Atomics return what was there, in host order of both ends; a failed compare changes nothing. */
static void atomics_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    struct vu_send add = rig_send(&rig, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 64, 8);
    add.compare_add = 0x100000001ull;
    rig_post(&rig, &add);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    VU_EQ(load64(rig.buf + 64), 0xfffffffffffffff0ull);
    rig_post(&rig, &add);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    VU_EQ(load64(rig.buf + 64), 0xfffffff1ull);
    struct vu_send cas = rig_send(&rig, IBV_WR_ATOMIC_CMP_AND_SWP, 2, 64, 8);
    cas.compare_add = 12345;
    cas.swap = 777;
    rig_post(&rig, &cas);
    vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    VU_EQ(load64(rig.buf + 64), 0x1fffffff2ull);
    cas.compare_add = 0x1fffffff2ull;
    rig_post(&rig, &cas);
    vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    VU_EQ(load64(rig.buf + 64), 0x1fffffff2ull);
    vu_barrier(sock);
    rig_close(&rig);
}

static void atomics_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    uint64_t initial = 0xfffffffffffffff0ull;
    memcpy(rig.buf + 64, &initial, 8);
    vu_barrier(sock);
    vu_barrier(sock);
    VU_EQ(load64(rig.buf + 64), 777);
    VU_EQ(load64(rig.buf + 56), 0);
    VU_EQ(load64(rig.buf + 72), 0);
    rig_close(&rig);
}

/* The builder interface, with an abort in between, and ibv_start_poll. */
static void builders_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.extended = true, .inline_bytes = 64}};
    rig_prepare(&rig, sock, &attr);
    struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(rig.ep.qp);
    VU_TRUE(qpx);
    rig_connect(&rig, NULL);
    memset(rig.buf, 0xa1, 8192);
    vu_barrier(sock);

    ibv_wr_start(qpx);
    qpx->wr_id = 666;
    qpx->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qpx, rig.peer.rkey, rig.peer.addr + 65536);
    ibv_wr_set_sge(qpx, rig.mr->lkey, (uintptr_t)rig.buf, 4096);
    ibv_wr_abort(qpx);

    uint8_t small[32];
    memset(small, 0xc3, sizeof(small));
    struct ibv_sge sges[2] = {{(uintptr_t)rig.buf, 100, rig.mr->lkey},
                              {(uintptr_t)rig.buf + 4096, 28, rig.mr->lkey}};
    ibv_wr_start(qpx);
    qpx->wr_id = 1;
    qpx->wr_flags = 0;
    ibv_wr_rdma_write(qpx, rig.peer.rkey, rig.peer.addr);
    ibv_wr_set_sge(qpx, rig.mr->lkey, (uintptr_t)rig.buf, 4096);
    qpx->wr_id = 2;
    qpx->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qpx, rig.peer.rkey, rig.peer.addr + 4096);
    ibv_wr_set_inline_data(qpx, small, sizeof(small));
    qpx->wr_id = 3;
    ibv_wr_send_imm(qpx, htonl(42));
    ibv_wr_set_sge_list(qpx, 2, sges);
    qpx->wr_id = 4;
    ibv_wr_rdma_read(qpx, rig.peer.rkey, rig.peer.addr);
    ibv_wr_set_sge(qpx, rig.mr->lkey, (uintptr_t)rig.buf + 16384, 4096);
    qpx->wr_id = 5;
    ibv_wr_atomic_fetch_add(qpx, rig.peer.rkey, rig.peer.addr + 8192, 5);
    ibv_wr_set_sge(qpx, rig.mr->lkey, (uintptr_t)rig.buf + 24576, 8);
    qpx->wr_id = 6;
    ibv_wr_atomic_cmp_swp(qpx, rig.peer.rkey, rig.peer.addr + 8192, 5, 9);
    ibv_wr_set_sge(qpx, rig.mr->lkey, (uintptr_t)rig.buf + 24584, 8);
    VU_EQ(ibv_wr_complete(qpx), 0);
    memset(small, 0, sizeof(small));
    static const enum ibv_wc_opcode opcodes[] = {IBV_WC_RDMA_WRITE, IBV_WC_SEND, IBV_WC_RDMA_READ,
                                                 IBV_WC_FETCH_ADD, IBV_WC_COMP_SWAP};
    for (unsigned int i = 0; i < 5; i++)
        VU_EQ(vu_expect(rig.ep.scq, 2 + i, IBV_WC_SUCCESS).opcode, opcodes[i]);
    rig_bytes(&rig, 16384, 4096, 0xa1);
    VU_EQ(load64(rig.buf + 24576), 0);
    VU_EQ(load64(rig.buf + 24584), 5);
    vu_barrier(sock);
    rig_close(&rig);
}

static void builders_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {0};
    rig_prepare(&rig, sock, &attr);
    struct ibv_cq_init_attr_ex init = {.cqe = 16,
                                       .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM |
                                                   IBV_WC_EX_WITH_QP_NUM};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(rig.dev.ctx, &init);
    VU_CHECK(cq, "ibv_create_cq_ex: %s", strerror(errno));
    vu_ep_destroy(&rig.ep);
    struct vu_ep_attr ep_attr = {.recv_cq = ibv_cq_ex_to_cq(cq)};
    vu_ep_create(&rig.dev, &ep_attr, &rig.ep);
    rig_connect(&rig, NULL);
    rig_recv(&rig, 10, 32768, 4096);
    vu_barrier(sock);
    struct ibv_poll_cq_attr none = {0};
    uint64_t deadline = vu_now_ms() + 20000;
    int rc;
    while ((rc = ibv_start_poll(cq, &none)) == ENOENT)
        VU_CHECK(vu_now_ms() < deadline, "no completion");
    VU_EQ(rc, 0);
    VU_EQ(cq->wr_id, 10);
    VU_EQ(cq->status, IBV_WC_SUCCESS);
    VU_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
    VU_EQ(ibv_wc_read_byte_len(cq), 128);
    VU_EQ(ntohl(ibv_wc_read_imm_data(cq)), 42);
    VU_EQ(ibv_wc_read_qp_num(cq), rig.ep.qp->qp_num);
    VU_EQ(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
    VU_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    vu_barrier(sock);
    rig_bytes(&rig, 0, 4096, 0xa1);
    rig_bytes(&rig, 4096, 32, 0xc3);
    rig_bytes(&rig, 4128, 4000, 0);
    VU_EQ(load64(rig.buf + 8192), 9);
    rig_bytes(&rig, 32768, 128, 0xa1);
    rig_bytes(&rig, 65536, 4096, 0); /* the aborted one */
    vu_ep_destroy(&rig.ep);
    VU_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    VU_EQ(ibv_dereg_mr(rig.mr), 0);
    vu_dev_close(&rig.dev);
}

/*
 * More than the caches hold, in blocks that begin and end anywhere: such copies may pass the caches
 * (base/stream_copy.h), and that starts behind 32 MiB.
 */
#define WIDE_BYTES (72u << 20)
#define WIDE_BLOCK 71553u

static uint64_t *wide_map(void)
{
    uint64_t *words =
        mmap(NULL, WIDE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_CHECK(words != MAP_FAILED, "mmap: %s", strerror(errno));
    return words;
}

static void wide_check(const uint64_t *words)
{
    for (uint64_t i = 0; i < WIDE_BYTES / 8; i++)
        VU_CHECK(words[i] == i * 3 + 1, "word %llu is %llx", (unsigned long long)i,
                 (unsigned long long)words[i]);
}

static void wide_move(struct rig *rig, enum ibv_wr_opcode opcode, const struct ibv_mr *mr,
                      const struct vu_key *key)
{
    for (uint32_t at = 0; at < WIDE_BYTES; at += WIDE_BLOCK) {
        const uint32_t left = WIDE_BYTES - at;
        const struct vu_send send = {.opcode = opcode,
                                     .wr_id = at,
                                     .flags = IBV_SEND_SIGNALED,
                                     .addr = (uint8_t *)mr->addr + at,
                                     .len_bytes = left < WIDE_BLOCK ? left : WIDE_BLOCK,
                                     .lkey = mr->lkey,
                                     .remote = key->addr + at,
                                     .rkey = key->rkey};
        rig_post(rig, &send);
        vu_expect(rig->ep.scq, at, IBV_WC_SUCCESS);
    }
}

static void wide_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    uint64_t *words = wide_map();
    for (uint64_t i = 0; i < WIDE_BYTES / 8; i++)
        words[i] = i * 3 + 1;
    struct ibv_mr *mr = ibv_reg_mr(rig.dev.pd, words, WIDE_BYTES, VU_ACCESS_ALL);
    VU_CHECK(mr, "ibv_reg_mr: %s", strerror(errno));
    const struct vu_key key = vu_trade_keys(sock, mr);
    wide_move(&rig, IBV_WR_RDMA_WRITE, mr, &key);
    memset(words, 0, WIDE_BYTES);
    wide_move(&rig, IBV_WR_RDMA_READ, mr, &key);
    wide_check(words);
    vu_barrier(sock);
    VU_EQ(ibv_dereg_mr(mr), 0);
    munmap(words, WIDE_BYTES);
    rig_close(&rig);
}

static void wide_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    uint64_t *words = wide_map();
    struct ibv_mr *mr = ibv_reg_mr(rig.dev.pd, words, WIDE_BYTES, VU_ACCESS_ALL);
    VU_CHECK(mr, "ibv_reg_mr: %s", strerror(errno));
    vu_trade_keys(sock, mr);
    vu_barrier(sock);
    wide_check(words);
    VU_EQ(ibv_dereg_mr(mr), 0);
    munmap(words, WIDE_BYTES);
    rig_close(&rig);
}

const struct sem_case sem_data[] = {
    {"write__more_than_the_caches", wide_a, wide_b, 0},
    {"completion__lengths_and_opcodes", lengths_a, lengths_b, 0},
    {"write_imm__consumes_a_receive", imm_a, imm_b, 0},
    {"zero_length__skips_the_key_check", zero_a, zero_b, 0},
    {"send_inv__plain_region", inv_a, inv_b, INV_REGION},
    {"send_inv__no_such_key", inv_a, inv_b, INV_GARBAGE},
    {"atomics__results", atomics_a, atomics_b, 0},
    {"builders__all_opcodes", builders_a, builders_b, 0},
    {0},
};
