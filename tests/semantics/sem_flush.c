/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: FLUSH (IBTA Vol1 annex A19): when it has completed, what was posted before it is where it
 * promised. */
#include <errno.h>
#include <sidewire/flush.h>
#include <string.h>

#include "sem.h"

#define FLUSH_RIGHTS (VU_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL)
#define WRITTEN 0xa1
#define BEFORE 0xb5
#define BYTES (128u * 1024) /* several steps where the target executes them */

const struct vu_ep_attr flush_ep = {.extended = true, .send_ops = IBV_QP_EX_WITH_FLUSH};
const struct vu_conn flush_conn = {.access = VU_ACCESS_REMOTE | IBV_ACCESS_FLUSH_GLOBAL |
                                             IBV_ACCESS_FLUSH_PERSISTENT,
                                   .rd_atomic = 8,
                                   .dest_rd_atomic = 8,
                                   .timeout = 14,
                                   .retry_cnt = 7,
                                   .rnr_retry = 7,
                                   .min_rnr_timer = 12};

int rig_flush(struct rig *rig, uint64_t wr_id, const struct vu_key *key, uint8_t type,
              uint8_t level)
{
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(rig->ep.qp);
    ibv_wr_start(ex);
    ex->wr_id = wr_id;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_flush(ex, key->rkey, key->addr, key->len_bytes, type, level);
    return ibv_wr_complete(ex);
}

static struct rig_attr admitting(void)
{
    return (struct rig_attr){
        .ep = flush_ep, .conn = flush_conn, .access = FLUSH_RIGHTS, .fill = BEFORE};
}

static void open_admitting(struct rig *rig, int sock)
{
    struct rig_attr attr = admitting();
    rig_open(rig, sock, &attr);
}

static void post_write(struct rig *rig, uint64_t wr_id, unsigned int flags)
{
    memset(rig->buf, WRITTEN, BYTES);
    struct vu_send write = rig_send(rig, IBV_WR_RDMA_WRITE, wr_id, 0, BYTES);
    write.flags = flags;
    rig_post(rig, &write);
}

/* The other side looks when the flush has completed, and not at its completion queue. */
static void visible_a(int sock, int level)
{
    struct rig rig;
    open_admitting(&rig, sock);
    post_write(&rig, 1, 0);
    VU_EQ(rig_flush(&rig, 2, &rig.peer, IBV_FLUSH_GLOBAL, (uint8_t)level), 0);
    VU_EQ(vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS).opcode, IBV_WC_FLUSH);
    vu_barrier(sock);
    rig_close(&rig);
}

static void visible_b(int sock, int level)
{
    (void)level;
    struct rig rig;
    open_admitting(&rig, sock);
    vu_barrier(sock);
    rig_bytes(&rig, 0, BYTES, WRITTEN);
    rig_bytes(&rig, BYTES, RIG_BYTES - BYTES, BEFORE);
    rig_close(&rig);
}

static void quiet_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    open_admitting(&rig, sock);
    vu_barrier(sock);
    rig_close(&rig);
}

/* Among requests of all kinds, all of them in order. */
static void among_others_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    open_admitting(&rig, sock);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(rig.ep.qp);
    const uint64_t word = 7;
    for (uint64_t round = 0; round < 50; round++) {
        ibv_wr_start(ex);
        ex->wr_flags = IBV_SEND_SIGNALED;
        ex->wr_id = 1;
        ibv_wr_rdma_write(ex, rig.peer.rkey, rig.peer.addr);
        ibv_wr_set_sge(ex, rig.mr->lkey, (uintptr_t)rig.buf, 4096);
        ex->wr_id = 2;
        ibv_wr_rdma_write(ex, 0, 0); /* of no bytes, and no setter either */
        ex->wr_id = 3;
        ibv_wr_flush(ex, rig.peer.rkey, rig.peer.addr, 4096, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
        ex->wr_id = 4;
        ibv_wr_atomic_write(ex, rig.peer.rkey, rig.peer.addr, &word);
        ex->wr_id = 5;
        ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
        ibv_wr_flush(ex, rig.peer.rkey, 0, 0, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR);
        ex->wr_id = 6;
        ibv_wr_rdma_read(ex, rig.peer.rkey, rig.peer.addr);
        ibv_wr_set_sge(ex, rig.mr->lkey, (uintptr_t)rig.buf + 8192, 8);
        VU_EQ(ibv_wr_complete(ex), 0);
        for (uint64_t wr_id = 1; wr_id <= 6; wr_id++)
            vu_expect(rig.ep.scq, wr_id, IBV_WC_SUCCESS);
        VU_EQ(*(uint64_t *)(rig.buf + 8192), word);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

enum refused {
    NO_REGION_RIGHT,
    NO_QP_RIGHT,
    PAST_END,
    BEFORE_START,
    BAD_KEY,
    EMPTY_BAD_KEY,
    WHOLE_BAD_KEY,
    NOT_PERSISTENT
};

static void refused_a(int sock, int param)
{
    struct rig rig;
    open_admitting(&rig, sock);
    struct vu_key key = rig.peer;
    uint8_t type = param == NOT_PERSISTENT ? IBV_FLUSH_PERSISTENT : IBV_FLUSH_GLOBAL;
    uint8_t level = param == WHOLE_BAD_KEY ? IBV_FLUSH_MR : IBV_FLUSH_RANGE;
    if (param == PAST_END)
        key.len_bytes++;
    if (param == BEFORE_START)
        key.addr--;
    if (param == BAD_KEY || param == EMPTY_BAD_KEY || param == WHOLE_BAD_KEY)
        key.rkey ^= 0x55aaff00;
    if (param == EMPTY_BAD_KEY)
        key.len_bytes = 0;
    post_write(&rig, 1, IBV_SEND_SIGNALED);
    VU_EQ(rig_flush(&rig, 2, &key, type, level), 0);
    VU_EQ(rig_flush(&rig, 3, &rig.peer, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE), 0);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_expect(rig.ep.scq, 2, param == NO_QP_RIGHT ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR);
    vu_expect(rig.ep.scq, 3, IBV_WC_WR_FLUSH_ERR);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void refused_b(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = admitting();
    if (param == NO_REGION_RIGHT)
        attr.access = VU_ACCESS_ALL;
    if (param == NO_QP_RIGHT)
        attr.conn.access = VU_ACCESS_REMOTE;
    rig_open(&rig, sock, &attr);
    VU_TRUE(vu_async_event(
        rig.dev.ctx, param == NO_QP_RIGHT ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_ACCESS_ERR, 20000));
    rig_bytes(&rig, 0, BYTES, WRITTEN);
    vu_barrier(sock);
    rig_close(&rig);
}

/* A fault of the request itself is said at once. */
static void not_posted_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    open_admitting(&rig, sock);
    struct vu_key long_key = rig.peer;
    long_key.len_bytes = (2ull << 30) + 1;
    VU_EQ(rig_flush(&rig, 1, &rig.peer, 0, IBV_FLUSH_RANGE), EINVAL);
    VU_EQ(rig_flush(&rig, 1, &rig.peer, 4, IBV_FLUSH_RANGE), EINVAL);
    VU_EQ(rig_flush(&rig, 1, &rig.peer, IBV_FLUSH_GLOBAL, 2), EINVAL);
    VU_EQ(rig_flush(&rig, 1, &long_key, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE), EINVAL);
    struct vu_send send = rig_send(&rig, IBV_WR_FLUSH, 1, 0, 64);
    VU_EQ(vu_post_send(rig.ep.qp, &send), EINVAL);
    /* Where the whole region is meant, neither address nor length mean anything. */
    long_key.addr = 1;
    VU_EQ(rig_flush(&rig, 2, &long_key, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR), 0);
    vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

const struct sem_case sem_flush[] = {
    {"flush__range_is_visible", visible_a, visible_b, IBV_FLUSH_RANGE},
    {"flush__region_is_visible", visible_a, visible_b, IBV_FLUSH_MR},
    {"flush__among_other_requests", among_others_a, quiet_b, 0},
    {"flush__no_region_right", refused_a, refused_b, NO_REGION_RIGHT},
    {"flush__no_qp_right", refused_a, refused_b, NO_QP_RIGHT},
    {"flush__past_end", refused_a, refused_b, PAST_END},
    {"flush__before_start", refused_a, refused_b, BEFORE_START},
    {"flush__bad_key", refused_a, refused_b, BAD_KEY},
    {"flush__empty_range_with_a_bad_key", refused_a, refused_b, EMPTY_BAD_KEY},
    {"flush__whole_region_with_a_bad_key", refused_a, refused_b, WHOLE_BAD_KEY},
    {"flush__persistence_that_was_not_granted", refused_a, refused_b, NOT_PERSISTENT},
    {"flush__malformed_is_not_posted", not_posted_a, quiet_b, 0},
    {0},
};
