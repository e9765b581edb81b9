/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot_floor.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif
#include <xxhash.h>

#include "endpoint.h"

enum { UNIT = 2 << 20, BLOCK = 4096, SLOTS = 16, REST_US = 100 };

struct bench_floor {
    const char *state;
    size_t bytes;
    int fd;
    char *ring;
    atomic_bool ends;
    _Atomic uint64_t allowed; /* bytes, since it was started */
    pthread_t thread;
};

static volatile uint64_t summed; /* so that nothing is left out */

static void sum_blocks(const char *data, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += BLOCK)
        summed ^= XXH3_128bits(data + at, BLOCK).low64;
}

static char *make_ring(void)
{
    char *ring = aligned_alloc(BLOCK, (size_t)UNIT * SLOTS);
    if (!ring)
        bench_die("there is no memory for a ring");
    memset(ring, 1, (size_t)UNIT * SLOTS);
    return ring;
}

/* Past the cache, as snapshots do; and the sum of what is in it. */
static void stream_block(char *into, const char *from)
{
#if defined(__x86_64__)
    for (size_t i = 0; i < BLOCK; i += sizeof(__m128i))
        _mm_stream_si128((__m128i *)(void *)(into + i),
                         _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
#else
    memcpy(into, from, BLOCK);
#endif
    sum_blocks(from, BLOCK);
}

static void *floor_run(void *argument)
{
    struct bench_floor *floor = argument;
    for (uint64_t turn = 0; !atomic_load(&floor->ends);) {
        const size_t at = turn * UNIT % floor->bytes;
        char *slot = floor->ring + turn % SLOTS * (size_t)UNIT;
        if ((turn + 1) * UNIT > atomic_load(&floor->allowed)) {
            usleep(REST_US);
            continue;
        }
        turn++;
        for (size_t block = 0; block < UNIT; block += BLOCK)
            stream_block(slot + block, floor->state + at + block);
        if (pwrite(floor->fd, slot, UNIT, (off_t)at) != UNIT)
            bench_die("the floor cannot write");
        if (at + UNIT == floor->bytes)
            fdatasync(floor->fd);
    }
    return NULL;
}

struct bench_floor *bench_floor_start(const void *state, size_t bytes, const char *path)
{
    struct bench_floor *floor = calloc(1, sizeof(*floor));
    if (!floor)
        bench_die("out of memory");
    floor->state = state;
    floor->bytes = bytes;
    floor->fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (floor->fd < 0)
        floor->fd = open(path, O_RDWR | O_CREAT, 0600);
    if (floor->fd < 0 || posix_fallocate(floor->fd, 0, (off_t)bytes))
        bench_die("the floor has no file");
    floor->ring = make_ring();
    if (pthread_create(&floor->thread, NULL, floor_run, floor))
        bench_die("the floor has no thread");
    return floor;
}

void bench_floor_allow(struct bench_floor *floor, uint64_t bytes)
{
    atomic_fetch_add(&floor->allowed, bytes);
}

void bench_floor_stop(struct bench_floor *floor)
{
    atomic_store(&floor->ends, true);
    pthread_join(floor->thread, NULL);
    close(floor->fd);
    free(floor->ring);
    free(floor);
}

static double floor_own_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double bench_copy_s(const void *state, size_t bytes)
{
    char *ring = make_ring();
    const double begun = floor_own_s();
    for (size_t at = 0; at < bytes; at += UNIT)
        memcpy(ring + at / UNIT % SLOTS * (size_t)UNIT, (const char *)state + at, UNIT);
    const double took = floor_own_s() - begun;
    free(ring);
    return took;
}

double bench_sum_s(const void *state, size_t bytes)
{
    const double begun = floor_own_s();
    sum_blocks(state, bytes);
    return floor_own_s() - begun;
}
