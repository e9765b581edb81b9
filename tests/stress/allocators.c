/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocators give memory back by madvise() and trust that it reads as zeros then:
 * allocators [--seed N] [--seconds N]; run with jemalloc, tcmalloc or mimalloc preloaded.
 * Threads of the owner allocate, clear, resize and free buffers of all sizes, register some of
 * them, and look at every byte; an io_uring comes and goes, so that some pages cannot be moved
 * back. The other side writes to buffers that are registered for it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "verbs_util/pair.h"

#define THREADS 2
#define BUFFERS 48
#define PEER_BYTES (3u << 20)

struct buffer {
    uint8_t *bytes;
    size_t len;
    uint8_t mark; /* what each byte is */
    struct ibv_mr *mr;
};

struct churn {
    struct vu_dev *dev;
    struct vu_random random;
    struct buffer buffers[BUFFERS];
    uint64_t calls;
    pthread_t thread;
};

static atomic_bool over;

/* Small ones often, some of several MiB. */
static size_t draw_size(struct vu_random *random)
{
    uint32_t shift = 4 + vu_random_below(random, 19);
    return 1 + vu_random_below(random, 1u << shift);
}

static void check_bytes(const struct buffer *buffer, size_t len, uint8_t byte, const char *what)
{
    if (len && (buffer->bytes[0] != byte || memcmp(buffer->bytes, buffer->bytes + 1, len - 1) != 0))
        for (size_t i = 0; i < len; i++)
            VU_CHECK(buffer->bytes[i] == byte, "%s: byte %zu of %zu at %p is 0x%x, not 0x%x", what,
                     i, len, (void *)buffer->bytes, buffer->bytes[i], byte);
}

static void fill(struct churn *churn, struct buffer *buffer)
{
    buffer->mark = (uint8_t)(1 + vu_random_below(&churn->random, 255));
    memset(buffer->bytes, buffer->mark, buffer->len);
}

static void release(struct buffer *buffer)
{
    check_bytes(buffer, buffer->len, buffer->mark, "before free");
    if (buffer->mr)
        VU_EQ(ibv_dereg_mr(buffer->mr), 0);
    free(buffer->bytes);
    *buffer = (struct buffer){0};
}

static void allocate(struct churn *churn, struct buffer *buffer)
{
    const uint32_t how = vu_random_below(&churn->random, 4);
    buffer->len = draw_size(&churn->random);
    if (how == 0) {
        buffer->bytes = malloc(buffer->len);
    } else if (how == 1) {
        buffer->bytes = aligned_alloc(4096, (buffer->len + 4095) / 4096 * 4096);
    } else {
        buffer->bytes = calloc(1, buffer->len);
        check_bytes(buffer, buffer->len, 0, "calloc");
    }
    VU_TRUE(buffer->bytes);
    fill(churn, buffer);
    if (vu_random_below(&churn->random, 3) == 0)
        buffer->mr = vu_reg(churn->dev, buffer->bytes, (uint32_t)buffer->len, VU_ACCESS_ALL);
}

static void resize(struct churn *churn, struct buffer *buffer)
{
    const size_t len = draw_size(&churn->random);
    if (buffer->mr)
        VU_EQ(ibv_dereg_mr(buffer->mr), 0);
    buffer->mr = NULL;
    buffer->bytes = realloc(buffer->bytes, len);
    VU_TRUE(buffer->bytes);
    check_bytes(buffer, len < buffer->len ? len : buffer->len, buffer->mark, "realloc");
    buffer->len = len;
    fill(churn, buffer);
}

static void *churn_on(void *arg)
{
    struct churn *churn = arg;
    uint8_t params[120] = {0};
    int ring = -1;
    while (!atomic_load(&over)) {
        struct buffer *buffer = &churn->buffers[vu_random_below(&churn->random, BUFFERS)];
        if (!buffer->bytes)
            allocate(churn, buffer);
        else if (vu_random_below(&churn->random, 3) == 0)
            resize(churn, buffer);
        else
            release(buffer);
        if (++churn->calls % 500 == 250)
            ring = (int)syscall(SYS_io_uring_setup, 4, params);
        if (churn->calls % 500 == 0 && ring >= 0)
            close(ring), ring = -1;
    }
    for (int i = 0; i < BUFFERS; i++)
        if (churn->buffers[i].bytes)
            release(&churn->buffers[i]);
    if (ring >= 0)
        close(ring);
    return NULL;
}

struct offer {
    struct vu_key key;
    uint8_t byte; /* to be written everywhere; 0: that was all */
};

/* Buffers that the other side fills. */
static uint64_t serve_peer(struct vu_dev *dev, int sock, const struct vu_seeded *options)
{
    struct vu_random random = {options->seed + 77};
    uint64_t end = vu_now_ms() + (uint64_t)options->seconds * 1000, served = 0;
    for (; vu_now_ms() < end; served++) {
        struct buffer buffer = {.len = 1 + vu_random_below(&random, PEER_BYTES)};
        uint8_t done;
        buffer.mark = (uint8_t)(1 + vu_random_below(&random, 255));
        buffer.bytes = calloc(1, buffer.len);
        VU_TRUE(buffer.bytes);
        buffer.mr = vu_reg(dev, buffer.bytes, (uint32_t)buffer.len, VU_ACCESS_ALL);
        struct offer offer = {{(uintptr_t)buffer.bytes, (uint32_t)buffer.len, buffer.mr->rkey},
                              buffer.mark};
        check_bytes(&buffer, buffer.len, 0, "calloc for the other side");
        vu_put(sock, &offer, sizeof(offer));
        vu_get(sock, &done, sizeof(done));
        release(&buffer);
    }
    struct offer last = {0};
    vu_put(sock, &last, sizeof(last));
    return served;
}

static void owner(int sock, void *arg)
{
    const struct vu_seeded *options = arg;
    struct churn *churns = calloc(THREADS, sizeof(*churns));
    struct vu_dev dev;
    struct vu_ep ep;
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    vu_connect(&ep, sock, NULL);
    for (uint32_t i = 0; i < THREADS; i++) {
        churns[i].dev = &dev;
        churns[i].random.state = options->seed + i;
        VU_EQ(pthread_create(&churns[i].thread, NULL, churn_on, &churns[i]), 0);
    }
    uint64_t calls = 0, served = serve_peer(&dev, sock, options);
    atomic_store(&over, true);
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(churns[i].thread, NULL);
        calls += churns[i].calls;
    }
    printf("seed %llu: %llu calls, %llu buffers written by the other side\n",
           (unsigned long long)options->seed, (unsigned long long)calls,
           (unsigned long long)served);
    VU_TRUE(calls > 100 && served > 5);
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    vu_dev_close(&dev);
    free(churns);
}

static void writer(int sock, void *arg)
{
    struct vu_dev dev;
    struct vu_ep ep;
    struct offer offer;
    (void)arg;
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    uint8_t *source = malloc(PEER_BYTES);
    VU_TRUE(source);
    struct ibv_mr *mr = vu_reg(&dev, source, PEER_BYTES, IBV_ACCESS_LOCAL_WRITE);
    vu_connect(&ep, sock, NULL);
    for (;;) {
        vu_get(sock, &offer, sizeof(offer));
        if (!offer.byte)
            break;
        memset(source, offer.byte, offer.key.len_bytes);
        struct vu_send send = {.opcode = IBV_WR_RDMA_WRITE,
                               .wr_id = 1,
                               .flags = IBV_SEND_SIGNALED,
                               .addr = source,
                               .len_bytes = (uint32_t)offer.key.len_bytes,
                               .lkey = mr->lkey,
                               .remote = offer.key.addr,
                               .rkey = offer.key.rkey};
        VU_EQ(vu_post_send(ep.qp, &send), 0);
        vu_expect(ep.scq, 1, IBV_WC_SUCCESS);
        vu_put(sock, &offer.byte, 1);
    }
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    VU_EQ(ibv_dereg_mr(mr), 0);
    free(source);
    vu_dev_close(&dev);
}

int main(int argc, char **argv)
{
    return vu_seeded_pair("allocators", argc, argv, writer, owner);
}
