/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pages that move under a peer's stores: moves [--seed N] [--seconds N]
 * The owner has a region of more pieces than peers can map, so that its last piece, the largest, is
 * private memory reached by system calls. The other side writes there without a pause. Meanwhile
 * the owner registers and deregisters a region over just this piece, so that its pages move there
 * and back. Acknowledged bytes must be there: the writer reads them back and compares.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs_util/pair.h"

#define PIECES 8 /* single pages, mappings of their own */
#define TAIL_BYTES (512u * 1024)
#define WORDS (TAIL_BYTES / 8)
#define WINDOW 4

/* Memory whose first pages are mappings each for itself: every second one has another flag. */
static uint8_t *map_in_pieces(size_t page)
{
    uint8_t *pages = mmap(NULL, PIECES * page + TAIL_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(pages != MAP_FAILED);
    for (int i = 1; i < PIECES; i += 2)
        VU_EQ(madvise(pages + (size_t)i * page, page, MADV_DONTDUMP), 0);
    memset(pages, 0, PIECES * page + TAIL_BYTES);
    return pages;
}

static void owner(int sock, void *arg)
{
    const struct vu_seeded *options = arg;
    struct vu_dev dev;
    struct vu_ep ep;
    size_t page = (size_t)getpagesize();
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    uint8_t *pages = map_in_pieces(page), *tail = pages + PIECES * page;
    struct ibv_mr *mr = vu_reg(&dev, pages, PIECES * page + TAIL_BYTES, VU_ACCESS_ALL);
    struct vu_key key = {(uintptr_t)tail, TAIL_BYTES, mr->rkey};
    vu_connect(&ep, sock, NULL);
    vu_put(sock, &key, sizeof(key));
    uint64_t end = vu_now_ms() + (uint64_t)options->seconds * 1000;
    int moves = 0;
    for (; vu_now_ms() < end; moves++)
        VU_EQ(ibv_dereg_mr(vu_reg(&dev, tail, TAIL_BYTES, VU_ACCESS_ALL)), 0);
    vu_put(sock, &moves, sizeof(moves));
    vu_barrier(sock);
    printf("seed %llu: moved %d times\n", (unsigned long long)options->seed, moves);
    VU_TRUE(moves > 10);
    VU_EQ(ibv_dereg_mr(mr), 0);
    vu_ep_destroy(&ep);
    vu_dev_close(&dev);
}

struct writer {
    struct vu_ep ep;
    struct ibv_mr *mr;
    uint64_t *source;  /* WINDOW requests of TAIL_BYTES */
    uint64_t *arrival; /* TAIL_BYTES */
    uint64_t *model;   /* what the owner's tail holds */
    uint64_t next;     /* value */
    struct vu_key key;
};

/* A window of WRITEs, every word of which is a new value, all completed when it returns. */
static void write_window(struct writer *w, struct vu_random *random)
{
    for (uint32_t i = 0; i < WINDOW; i++) {
        uint32_t first = vu_random_below(random, WORDS);
        uint32_t count = 1 + vu_random_below(random, WORDS - first);
        uint64_t *values = w->source + (size_t)i * WORDS;
        for (uint32_t k = 0; k < count; k++)
            w->model[first + k] = values[k] = w->next++;
        struct vu_send send = {.opcode = IBV_WR_RDMA_WRITE,
                               .wr_id = i,
                               .flags = IBV_SEND_SIGNALED,
                               .addr = values,
                               .len_bytes = count * 8,
                               .lkey = w->mr->lkey,
                               .remote = w->key.addr + (uint64_t)first * 8,
                               .rkey = w->key.rkey};
        VU_EQ(vu_post_send(w->ep.qp, &send), 0);
    }
    for (uint32_t i = 0; i < WINDOW; i++)
        vu_expect(w->ep.scq, i, IBV_WC_SUCCESS);
}

static void read_back(struct writer *w)
{
    struct vu_send send = {.opcode = IBV_WR_RDMA_READ,
                           .wr_id = 99,
                           .flags = IBV_SEND_SIGNALED,
                           .addr = w->arrival,
                           .len_bytes = TAIL_BYTES,
                           .lkey = w->mr->lkey,
                           .remote = w->key.addr,
                           .rkey = w->key.rkey};
    VU_EQ(vu_post_send(w->ep.qp, &send), 0);
    vu_expect(w->ep.scq, 99, IBV_WC_SUCCESS);
    if (memcmp(w->arrival, w->model, TAIL_BYTES) == 0)
        return;
    for (uint32_t i = 0; i < WORDS; i++)
        VU_CHECK(w->arrival[i] == w->model[i], "word %u is %llu, acknowledged was %llu", i,
                 (unsigned long long)w->arrival[i], (unsigned long long)w->model[i]);
}

static void writing(int sock, void *arg)
{
    const struct vu_seeded *options = arg;
    struct vu_dev dev;
    struct writer w = {.next = 1};
    struct vu_random random = {options->seed};
    size_t source_bytes = (size_t)WINDOW * TAIL_BYTES;
    vu_dev_open(&dev);
    w.source = malloc(source_bytes + TAIL_BYTES);
    w.model = calloc(1, TAIL_BYTES);
    VU_TRUE(w.source && w.model);
    w.arrival = w.source + source_bytes / 8;
    w.mr = vu_reg(&dev, w.source, source_bytes + TAIL_BYTES, IBV_ACCESS_LOCAL_WRITE);
    vu_ep_create(&dev, NULL, &w.ep);
    vu_connect(&w.ep, sock, NULL);
    vu_get(sock, &w.key, sizeof(w.key));
    uint64_t end = vu_now_ms() + (uint64_t)options->seconds * 1000;
    while (vu_now_ms() < end) {
        write_window(&w, &random);
        read_back(&w);
    }
    int moves;
    vu_get(sock, &moves, sizeof(moves));
    read_back(&w);
    vu_barrier(sock);
    vu_ep_destroy(&w.ep);
    VU_EQ(ibv_dereg_mr(w.mr), 0);
    free(w.source);
    free(w.model);
    vu_dev_close(&dev);
}

int main(int argc, char **argv)
{
    return vu_seeded_pair("moves", argc, argv, writing, owner);
}
