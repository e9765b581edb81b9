/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several threads discard registered memory by raw system calls, at once:
 * raw_discards [SECONDS [SEED]]. Each has slices of a buffer that is registered anew all the
 * time. Bytes that it discarded read as zeros at once, those that it stores then stay, and so do
 * those that nobody discards; also while the buffer is deregistered.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "verbs_util/pair.h"

#define PAGE 4096u
#define THREADS 3
#define SLICE_PAGES 40u /* of which the first and the last stay */
#define SLICES 4u       /* of each thread */
#define PAGES (THREADS * SLICES * SLICE_PAGES)

static struct {
    uint8_t *bytes;
    pthread_barrier_t go;
    atomic_bool over;
} shared;

struct discarder {
    struct vu_random random;
    uint32_t first; /* page of its slices */
    uint64_t calls;
    pthread_t thread;
};

static void expect_page(const uint8_t *page, uint8_t byte, const char *what)
{
    for (uint32_t i = 0; i < PAGE; i++)
        VU_CHECK(page[i] == byte, "%s: byte %u at %p is 0x%x, not 0x%x", what, i, (void *)page,
                 page[i], byte);
}

static void discard_slice(struct discarder *d, uint8_t *slice)
{
    const uint32_t first = 1 + vu_random_below(&d->random, SLICE_PAGES - 2);
    const uint32_t count = 1 + vu_random_below(&d->random, SLICE_PAGES - 1 - first);
    const uint8_t byte = (uint8_t)(1 + vu_random_below(&d->random, 254));
    memset(slice, byte, (size_t)SLICE_PAGES * PAGE);
    VU_EQ(syscall(SYS_madvise, slice + (size_t)first * PAGE, (size_t)count * PAGE, MADV_DONTNEED),
          0);
    for (uint32_t i = first; i < first + count; i++)
        expect_page(slice + (size_t)i * PAGE, 0, "discarded");
    slice[(size_t)first * PAGE + 5] = 255;
    expect_page(slice, byte, "before it");
    expect_page(slice + (size_t)(SLICE_PAGES - 1) * PAGE, byte, "behind it");
    VU_EQ(slice[(size_t)first * PAGE + 5], 255);
    d->calls++;
}

static void *discard_on(void *arg)
{
    struct discarder *d = arg;
    for (;;) {
        pthread_barrier_wait(&shared.go); /* registered */
        if (atomic_load(&shared.over))
            return NULL;
        for (uint32_t i = 0; i < SLICES; i++)
            discard_slice(d, shared.bytes + (size_t)(d->first + i * SLICE_PAGES) * PAGE);
        pthread_barrier_wait(&shared.go);
    }
}

int main(int argc, char **argv)
{
    const struct vu_seeded options = {argc > 2 ? strtoull(argv[2], NULL, 0) : vu_now_ms(),
                                      argc > 1 ? atoi(argv[1]) : 3};
    struct discarder discarders[THREADS] = {0};
    struct vu_dev dev;
    uint64_t rounds = 0;
    printf("seed %llu\n", (unsigned long long)options.seed);
    fflush(stdout);
    vu_dev_open(&dev);
    VU_EQ(pthread_barrier_init(&shared.go, NULL, THREADS + 1), 0);
    shared.bytes = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(shared.bytes != MAP_FAILED);
    for (uint32_t i = 0; i < THREADS; i++) {
        discarders[i].random.state = options.seed + i;
        discarders[i].first = i * SLICES * SLICE_PAGES;
        VU_EQ(pthread_create(&discarders[i].thread, NULL, discard_on, &discarders[i]), 0);
    }
    for (uint64_t end = vu_now_ms() + (uint64_t)options.seconds * 1000; vu_now_ms() < end;) {
        struct ibv_mr *mr = vu_reg(&dev, shared.bytes, PAGES * PAGE, VU_ACCESS_ALL);
        pthread_barrier_wait(&shared.go);
        VU_EQ(ibv_dereg_mr(mr), 0);
        pthread_barrier_wait(&shared.go);
        rounds++;
    }
    atomic_store(&shared.over, true);
    pthread_barrier_wait(&shared.go);
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(discarders[i].thread, NULL);
    printf("%llu rounds\n", (unsigned long long)rounds);
    VU_TRUE(rounds > 2);
    vu_dev_close(&dev);
    return 0;
}
