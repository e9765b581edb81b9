/* SPDX-License-Identifier: BSD-2-Clause */
#include "traffic.h"

#include <assert.h>

#include <stdlib.h>
#include <string.h>

#define GUARD_MARK 0x6e
#define SLOT_BYTES (TRAFFIC_SEND_MAX / 4)
#define QUEUE 16
#define RECV_WR 1000
#define GONE_MS 20000

/* Offsets in the region. */
enum {
    WRITABLE = 0,
    READABLE = 16 * 1024,
    RECVS = 32 * 1024,
    ARRIVALS = RECVS + TRAFFIC_RECVS * 5000 + 8, /* of READs and atomics */
};
static_assert(ARRIVALS + TRAFFIC_WINDOW * 5000 < TRAFFIC_BYTES && SLOT_BYTES == 5000, "layout");

void traffic_memory(struct traffic *traffic, struct vu_dev *dev, uint8_t mark)
{
    memset(traffic, 0, sizeof(*traffic));
    traffic->dev = dev;
    traffic->mark = mark;
    traffic->retries = 7;
    traffic->block = malloc(TRAFFIC_BYTES + 2 * TRAFFIC_GUARD);
    VU_CHECK(traffic->block, "out of memory");
    traffic->base = traffic->block + TRAFFIC_GUARD;
    memset(traffic->block, GUARD_MARK, TRAFFIC_BYTES + 2 * TRAFFIC_GUARD);
    memset(traffic->base, 0, TRAFFIC_BYTES);
    traffic->mr = vu_reg(dev, traffic->base, TRAFFIC_BYTES, VU_ACCESS_ALL);
}

static void post_recv(struct traffic *traffic, unsigned int slot)
{
    VU_EQ(vu_post_recv(traffic->ep.qp, RECV_WR + slot, traffic->base + RECVS + slot * SLOT_BYTES,
                       SLOT_BYTES, traffic->mr->lkey),
          0);
}

struct hello {
    struct vu_peer peer;
    struct vu_key key;
    uint8_t mark;
};

bool traffic_connect(struct traffic *traffic, int sock, uint64_t seed, uint8_t timeout)
{
    struct vu_conn conn = {.access = VU_ACCESS_REMOTE,
                           .rd_atomic = 4,
                           .dest_rd_atomic = 4,
                           .timeout = timeout,
                           .retry_cnt = traffic->retries,
                           .rnr_retry = 7,
                           .min_rnr_timer = 1};
    struct vu_ep_attr attr = {.send_wr = QUEUE, .recv_wr = TRAFFIC_RECVS, .inline_bytes = 64};
    traffic->random.state = seed;
    traffic->outstanding = traffic->posted = 0;
    traffic->completed = 0;
    traffic->failed = IBV_WC_SUCCESS;
    memset(traffic->base, 0, TRAFFIC_BYTES);
    memset(traffic->base + READABLE, traffic->mark, RECVS - READABLE);
    vu_ep_create(traffic->dev, &attr, &traffic->ep);

    struct hello mine = {vu_ep_self(&traffic->ep),
                         {(uintptr_t)traffic->base, TRAFFIC_BYTES, traffic->mr->rkey},
                         traffic->mark};
    struct hello other;
    char ready = 'r';
    bool good =
        vu_try_put(sock, &mine, sizeof(mine)) && vu_try_get(sock, &other, sizeof(other), GONE_MS);
    if (good) {
        traffic->peer = other.key;
        traffic->peer_mark = other.mark;
        vu_ep_init(&traffic->ep, &conn);
        for (unsigned int i = 0; i < TRAFFIC_RECVS; i++)
            post_recv(traffic, i);
        vu_ep_rtr(&traffic->ep, &other.peer, &conn);
        vu_ep_rts(&traffic->ep, &conn);
        good = vu_try_put(sock, &ready, 1) && vu_try_get(sock, &ready, 1, GONE_MS);
    }
    if (!good)
        traffic_disconnect(traffic);
    return good;
}

static void check_range(const struct traffic *traffic, const uint8_t *from, size_t len_bytes,
                        uint8_t a, uint8_t b, const char *what)
{
    for (size_t i = 0; i < len_bytes; i++)
        VU_CHECK(from[i] == a || from[i] == b,
                 "%s: foreign byte 0x%02x at %zu of %zu (marks 0x%02x, 0x%02x)", what, from[i], i,
                 len_bytes, traffic->mark, traffic->peer_mark);
}

static void post_one(struct traffic *traffic)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,
                                                 IBV_WR_RDMA_READ,  IBV_WR_SEND,
                                                 IBV_WR_SEND,       IBV_WR_RDMA_WRITE_WITH_IMM};
    struct vu_random *random = &traffic->random;
    uint32_t len = 1 + vu_random_below(random, vu_random_below(random, 3) ? 300 : SLOT_BYTES);
    struct vu_send send = {.opcode = opcodes[vu_random_below(random, 6)],
                           .wr_id = traffic->posted++ % TRAFFIC_WINDOW,
                           .flags = IBV_SEND_SIGNALED,
                           .addr = traffic->base + READABLE + vu_random_below(random, 2000),
                           .len_bytes = len,
                           .lkey = traffic->mr->lkey,
                           .remote = traffic->peer.addr + WRITABLE + vu_random_below(random, 10000),
                           .rkey = traffic->peer.rkey};
    if (send.opcode == IBV_WR_RDMA_READ) {
        send.addr = traffic->base + ARRIVALS + send.wr_id * SLOT_BYTES;
        send.remote = traffic->peer.addr + READABLE + vu_random_below(random, 10000);
    } else if (len <= 64 && vu_random_below(random, 2)) {
        send.flags |= IBV_SEND_INLINE;
    }
    VU_EQ(vu_post_send(traffic->ep.qp, &send), 0);
    traffic->outstanding++;
}

static void received(struct traffic *traffic, const struct ibv_wc *wc)
{
    unsigned int slot = (unsigned int)wc->wr_id - RECV_WR;
    VU_TRUE(slot < TRAFFIC_RECVS);
    uint8_t *at = traffic->base + RECVS + slot * SLOT_BYTES;
    if (wc->opcode == IBV_WC_RECV) { /* whole and from the peer, whatever happened to it since */
        VU_TRUE(wc->byte_len >= 1 && wc->byte_len <= SLOT_BYTES);
        check_range(traffic, at, wc->byte_len, traffic->peer_mark, traffic->peer_mark, "message");
        check_range(traffic, at + wc->byte_len, SLOT_BYTES - wc->byte_len, 0, 0,
                    "behind a message");
        memset(at, 0, wc->byte_len);
    }
    post_recv(traffic, slot);
}

static void sent(struct traffic *traffic, const struct ibv_wc *wc)
{
    traffic->outstanding--;
    traffic->completed++;
    if (wc->opcode == IBV_WC_RDMA_READ)
        check_range(traffic, traffic->base + ARRIVALS + wc->wr_id * SLOT_BYTES, wc->byte_len,
                    traffic->peer_mark, traffic->peer_mark, "data read");
}

bool traffic_step(struct traffic *traffic, bool initiate)
{
    struct ibv_wc wcs[8];
    while (initiate && traffic->outstanding < TRAFFIC_WINDOW)
        post_one(traffic);
    for (int queue = 0; queue < 2; queue++) {
        int n = ibv_poll_cq(queue ? traffic->ep.rcq : traffic->ep.scq, 8, wcs);
        VU_TRUE(n >= 0);
        for (int i = 0; i < n; i++) {
            if (wcs[i].status != IBV_WC_SUCCESS) {
                if (traffic->failed == IBV_WC_SUCCESS)
                    traffic->failed = wcs[i].status;
                return false;
            }
            (queue ? received : sent)(traffic, &wcs[i]);
        }
    }
    return true;
}

void traffic_disconnect(struct traffic *traffic)
{
    vu_ep_destroy(&traffic->ep);
    check_range(traffic, traffic->block, TRAFFIC_GUARD, GUARD_MARK, GUARD_MARK, "guard before");
    check_range(traffic, traffic->base + TRAFFIC_BYTES, TRAFFIC_GUARD, GUARD_MARK, GUARD_MARK,
                "guard behind");
    check_range(traffic, traffic->base + WRITABLE, READABLE, 0, traffic->peer_mark, "window");
    check_range(traffic, traffic->base + READABLE, RECVS - READABLE, traffic->mark, traffic->mark,
                "own data");
    check_range(traffic, traffic->base + RECVS, TRAFFIC_BYTES - RECVS, 0, traffic->peer_mark,
                "receives and arrivals");
}

void traffic_release(struct traffic *traffic)
{
    VU_EQ(ibv_dereg_mr(traffic->mr), 0);
    free(traffic->block);
}
