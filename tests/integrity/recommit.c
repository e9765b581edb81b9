/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocators take back and give out memory by mprotect() and mmap(), while other threads
 * register and deregister what lies there: recommit [SECONDS [SEED]]. Each thread has slices of a
 * buffer whose pages move all the time. What it made writable stays so, and what it mapped anew
 * is zero and stays its own.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "verbs_util/pair.h"

#define PAGE 4096u
#define THREADS 2
#define SLICE_PAGES 16u
#define SLICES 8u /* of each thread */
#define PAGES (THREADS * SLICES * SLICE_PAGES)

static struct {
    uint8_t *bytes;
    atomic_bool over;
} shared;

struct owner {
    struct vu_random random;
    uint32_t first; /* page of its slices */
    uint64_t calls;
    pthread_t thread;
};

static void map_anew(volatile uint8_t *slice, size_t len)
{
    void *at = (void *)(uintptr_t)slice;
    VU_TRUE(mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
            at);
    for (size_t i = 0; i < len; i += PAGE)
        VU_EQ(slice[i], 0);
}

static void use_slice(struct owner *owner, volatile uint8_t *slice)
{
    const uint8_t byte = (uint8_t)(1 + vu_random_below(&owner->random, 255));
    const size_t len = (size_t)SLICE_PAGES * PAGE;
    if (vu_random_below(&owner->random, 4) == 0) {
        map_anew(slice, len);
    } else {
        VU_EQ(mprotect((void *)(uintptr_t)slice, len, PROT_READ), 0);
        VU_EQ(mprotect((void *)(uintptr_t)slice, len, PROT_READ | PROT_WRITE), 0);
    }
    for (size_t i = 0; i < len; i += PAGE)
        slice[i] = byte;
    for (size_t i = 0; i < len; i += PAGE)
        VU_CHECK(slice[i] == byte, "page %zu is 0x%x, not 0x%x", i / PAGE, slice[i], byte);
    owner->calls++;
}

static void *use_on(void *arg)
{
    struct owner *owner = arg;
    while (!atomic_load(&shared.over)) {
        const uint32_t slice = vu_random_below(&owner->random, SLICES);
        use_slice(owner, shared.bytes + (size_t)(owner->first + slice * SLICE_PAGES) * PAGE);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : vu_now_ms();
    const int seconds = argc > 1 ? atoi(argv[1]) : 3;
    struct owner owners[THREADS] = {0};
    struct vu_dev dev;
    uint64_t rounds = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    vu_dev_open(&dev);
    shared.bytes = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(shared.bytes != MAP_FAILED);
    for (uint32_t i = 0; i < THREADS; i++) {
        owners[i].random.state = seed + i;
        owners[i].first = i * SLICES * SLICE_PAGES;
        VU_EQ(pthread_create(&owners[i].thread, NULL, use_on, &owners[i]), 0);
    }
    for (uint64_t end = vu_now_ms() + (uint64_t)seconds * 1000; vu_now_ms() < end;) {
        struct ibv_mr *mr = ibv_reg_mr(dev.pd, shared.bytes, PAGES * PAGE, VU_ACCESS_ALL);
        if (!mr) /* some of it cannot be written to just now */
            continue;
        VU_EQ(ibv_dereg_mr(mr), 0);
        rounds++;
    }
    atomic_store(&shared.over, true);
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(owners[i].thread, NULL);
    printf("%llu rounds\n", (unsigned long long)rounds);
    vu_dev_close(&dev);
    return 0;
}
