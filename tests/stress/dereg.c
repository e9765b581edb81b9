/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Deregistration under fire: dereg [--seed N] [--seconds N]
 * One side registers, lets the other write and read over two QPs, deregisters at a random instant,
 * spoils the memory at once, and finds that no byte changes any more; the other never reads a
 * spoilt byte, gets a remote access error on each QP, and connects again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "verbs_util/pair.h"

#define GOOD 0x47    /* what the owner puts into a region */
#define WRITTEN 0x57 /* what the other side writes */
#define SPOILT 0xdd  /* what the owner puts there when the region is gone */
#define BLOCK_BYTES (400u * 1024)
#define QPS 2
#define QUEUE 8
#define GONE_MS 20000

struct round {
    uint64_t addr;
    uint32_t len_bytes, rkey;
    bool more;
};

static void reconnect(struct vu_ep *eps, int sock)
{
    for (int i = 0; i < QPS; i++) {
        vu_ep_to(&eps[i], IBV_QPS_RESET);
        vu_connect(&eps[i], sock, NULL);
    }
}

static void pause_some(struct vu_random *random)
{
    uint64_t steps = vu_random_below(random, 3000);
    for (uint64_t i = 0; i < steps; i++) {
        if (i % 64 == 0)
            sched_yield();
        __asm__ volatile("");
    }
    if (vu_random_below(random, 3) == 0)
        vu_sleep_ms(vu_random_below(random, 3));
}

static void expect_all(const uint8_t *at, size_t len_bytes, uint8_t a, uint8_t b, const char *what)
{
    for (size_t i = 0; i < len_bytes; i++)
        VU_CHECK(at[i] == a || at[i] == b, "%s: byte %zu of %zu is 0x%02x", what, i, len_bytes,
                 at[i]);
}

static void one_region(struct vu_dev *dev, int sock, uint8_t *block, struct vu_random *random,
                       bool more)
{
    struct round round = {.more = more};
    uint32_t start = vu_random_below(random, 6000);
    round.len_bytes =
        1 + vu_random_below(random, vu_random_below(random, 2) ? 5000 : BLOCK_BYTES - start);
    memset(block, GOOD, BLOCK_BYTES);
    struct ibv_mr *mr = vu_reg(dev, block + start, round.len_bytes, VU_ACCESS_ALL);
    struct ibv_mr *twin =
        vu_random_below(random, 3) ? NULL : vu_reg(dev, block, BLOCK_BYTES, IBV_ACCESS_LOCAL_WRITE);
    round.addr = (uintptr_t)mr->addr;
    round.rkey = mr->rkey;
    vu_put(sock, &round, sizeof(round));
    pause_some(random);
    uint64_t begun = vu_now_ms();
    VU_EQ(ibv_dereg_mr(mr), 0);
    VU_CHECK(vu_now_ms() - begun < GONE_MS, "deregistration took %llu ms",
             (unsigned long long)(vu_now_ms() - begun));
    expect_all(block, start, GOOD, GOOD, "before the region");
    expect_all(block + start, round.len_bytes, GOOD, WRITTEN, "the region");
    expect_all(block + start + round.len_bytes, BLOCK_BYTES - start - round.len_bytes, GOOD, GOOD,
               "behind the region");
    memset(block, SPOILT, BLOCK_BYTES);
    pause_some(random);
    expect_all(block, BLOCK_BYTES, SPOILT, SPOILT, "after deregistration");
    if (twin)
        VU_EQ(ibv_dereg_mr(twin), 0);
    expect_all(block, BLOCK_BYTES, SPOILT, SPOILT, "after the last deregistration");
}

static void owner(int sock, void *arg)
{
    const struct vu_seeded *options = arg;
    struct vu_dev dev;
    struct vu_ep eps[QPS];
    struct vu_random random = {options->seed};
    vu_dev_open(&dev);
    for (int i = 0; i < QPS; i++)
        vu_ep_create(&dev, NULL, &eps[i]);
    uint8_t *blocks[2] = {malloc(BLOCK_BYTES), mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE,
                                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    VU_TRUE(blocks[0] && blocks[1] != MAP_FAILED);
    uint64_t end = vu_now_ms() + (uint64_t)options->seconds * 1000;
    int rounds = 0;
    for (bool more = true; more; rounds++) {
        reconnect(eps, sock);
        more = vu_now_ms() < end;
        one_region(&dev, sock, blocks[vu_random_below(&random, 4) == 0], &random, more);
        vu_barrier(sock); /* the other side has seen its errors */
    }
    printf("seed %llu: %d regions\n", (unsigned long long)options->seed, rounds);
    for (int i = 0; i < QPS; i++)
        vu_ep_destroy(&eps[i]);
    vu_dev_close(&dev);
}

struct accessor {
    struct vu_ep *ep;
    uint8_t *arrivals; /* QUEUE slots of BLOCK_BYTES */
    uint32_t lens[QUEUE];
    unsigned int posted, done;
    bool failed;
};

static void access_some(struct accessor *accessor, const struct round *round, const uint8_t *source,
                        uint32_t lkey, struct vu_random *random)
{
    while (accessor->posted - accessor->done < QUEUE) {
        unsigned int slot = accessor->posted % QUEUE;
        uint32_t offset = vu_random_below(random, round->len_bytes);
        uint32_t len = 1 + vu_random_below(random, round->len_bytes - offset);
        bool read = vu_random_below(random, 2);
        struct vu_send send = {.opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
                               .wr_id = accessor->posted,
                               .flags = IBV_SEND_SIGNALED,
                               .addr = read ? accessor->arrivals + (size_t)slot * BLOCK_BYTES
                                            : (uint8_t *)(uintptr_t)source,
                               .len_bytes = len,
                               .lkey = lkey,
                               .remote = round->addr + offset,
                               .rkey = round->rkey};
        accessor->lens[slot] = len;
        VU_EQ(vu_post_send(accessor->ep->qp, &send), 0);
        accessor->posted++;
    }
}

/* iWARP tells a READ of a refusal, if one is under way, and flushes all else. */
static bool is_due(const struct accessor *accessor, enum ibv_wc_status status)
{
    if (accessor->failed || (vu_is_iwarp(accessor->ep->dev) && status != IBV_WC_REM_ACCESS_ERR))
        return status == IBV_WC_WR_FLUSH_ERR;
    return status == IBV_WC_REM_ACCESS_ERR;
}

static void collect(struct accessor *accessor)
{
    struct ibv_wc wcs[4];
    int n = ibv_poll_cq(accessor->ep->scq, 4, wcs);
    VU_TRUE(n >= 0);
    for (int i = 0; i < n; i++) {
        unsigned int slot = accessor->done % QUEUE;
        if (wcs[i].status == IBV_WC_SUCCESS) {
            VU_TRUE(!accessor->failed);
            VU_EQ(wcs[i].wr_id, accessor->done);
            if (wcs[i].opcode == IBV_WC_RDMA_READ)
                expect_all(accessor->arrivals + (size_t)slot * BLOCK_BYTES, accessor->lens[slot],
                           GOOD, WRITTEN, "data read");
        } else {
            VU_CHECK(is_due(accessor, wcs[i].status), "request %llu, %u bytes, ended with \"%s\"",
                     (unsigned long long)wcs[i].wr_id, accessor->lens[slot],
                     ibv_wc_status_str(wcs[i].status));
            accessor->failed = true;
        }
        accessor->done++;
    }
}

static void accessing(int sock, void *arg)
{
    const struct vu_seeded *options = arg;
    struct vu_dev dev;
    struct vu_ep eps[QPS];
    struct vu_random random = {~options->seed};
    vu_dev_open(&dev);
    size_t arena_bytes = (size_t)(1 + QPS * QUEUE) * BLOCK_BYTES;
    uint8_t *arena = malloc(arena_bytes);
    VU_TRUE(arena);
    memset(arena, WRITTEN, BLOCK_BYTES);
    struct ibv_mr *mr = vu_reg(&dev, arena, arena_bytes, IBV_ACCESS_LOCAL_WRITE);
    for (int i = 0; i < QPS; i++)
        vu_ep_create(&dev, NULL, &eps[i]);
    struct round round = {.more = true};
    while (round.more) {
        reconnect(eps, sock);
        vu_get(sock, &round, sizeof(round));
        struct accessor accessors[QPS];
        memset(accessors, 0, sizeof(accessors));
        for (int i = 0; i < QPS; i++) {
            accessors[i].ep = &eps[i];
            accessors[i].arrivals = arena + (size_t)(1 + i * QUEUE) * BLOCK_BYTES;
        }
        uint64_t deadline = vu_now_ms() + GONE_MS;
        for (int ended = 0; ended < QPS;) {
            ended = 0;
            for (int i = 0; i < QPS; i++) {
                if (!accessors[i].failed)
                    access_some(&accessors[i], &round, arena, mr->lkey, &random);
                collect(&accessors[i]);
                ended += accessors[i].failed && accessors[i].done == accessors[i].posted;
            }
            VU_CHECK(vu_now_ms() < deadline, "accesses go on without an error");
        }
        vu_barrier(sock);
    }
    for (int i = 0; i < QPS; i++)
        vu_ep_destroy(&eps[i]);
    VU_EQ(ibv_dereg_mr(mr), 0);
    vu_dev_close(&dev);
}

int main(int argc, char **argv)
{
    return vu_seeded_pair("dereg", argc, argv, accessing, owner);
}
