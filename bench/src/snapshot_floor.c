/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot_floor.h"

#include <fcntl.h>
#include <liburing.h>
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
    struct io_uring calls;
    bool is_written[SLOTS]; /* a write of that slot is under way */
    uint32_t under_way;
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

enum { FLUSH_CALL = SLOTS };

static struct io_uring_sqe *floor_call(struct bench_floor *floor, uint64_t what)
{
    struct io_uring_sqe *call = io_uring_get_sqe(&floor->calls);
    if (!call)
        bench_die("the floor has no room for a call");
    io_uring_sqe_set_data64(call, what);
    floor->under_way++;
    return call;
}

static void end_one_call(struct bench_floor *floor)
{
    struct io_uring_cqe *ended;
    if (io_uring_wait_cqe(&floor->calls, &ended))
        bench_die("the floor cannot wait");
    const uint64_t what = io_uring_cqe_get_data64(ended);
    if (ended->res != (what == FLUSH_CALL ? 0 : UNIT))
        bench_die("the floor cannot write");
    if (what != FLUSH_CALL)
        floor->is_written[what] = false;
    floor->under_way--;
    io_uring_cqe_seen(&floor->calls, ended);
}

/* What is written last is flushed behind all else, as the parts of a snapshot are. */
static void flush_floor(struct bench_floor *floor)
{
    while (floor->under_way)
        end_one_call(floor);
    io_uring_prep_fsync(floor_call(floor, FLUSH_CALL), floor->fd, IORING_FSYNC_DATASYNC);
    io_uring_submit(&floor->calls);
}

static void floor_write(struct bench_floor *floor, uint64_t turn)
{
    const size_t at = turn * UNIT % floor->bytes;
    const uint64_t slot = turn % SLOTS;
    char *data = floor->ring + slot * UNIT;
    while (floor->is_written[slot])
        end_one_call(floor);
    for (size_t block = 0; block < UNIT; block += BLOCK)
        stream_block(data + block, floor->state + at + block);
    floor->is_written[slot] = true;
    io_uring_prep_write(floor_call(floor, slot), floor->fd, data, UNIT, at);
    io_uring_submit(&floor->calls);
    if (at + UNIT == floor->bytes)
        flush_floor(floor);
}

/* Copies while what was copied before is being written, as snapshots do. */
static void *floor_run(void *argument)
{
    struct bench_floor *floor = argument;
    for (uint64_t turn = 0; !atomic_load(&floor->ends);) {
        if ((turn + 1) * UNIT <= atomic_load(&floor->allowed))
            floor_write(floor, turn++);
        else
            usleep(REST_US);
    }
    while (floor->under_way)
        end_one_call(floor);
    return NULL;
}

/* Its blocks are there, and were written before, as those of a volume that is in use. */
static void prepare_file(struct bench_floor *floor, const char *path)
{
    floor->fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (floor->fd < 0)
        floor->fd = open(path, O_RDWR | O_CREAT, 0600);
    if (floor->fd < 0)
        bench_die("the floor has no file");
    if (lseek(floor->fd, 0, SEEK_END) == (off_t)floor->bytes)
        return;
    if (posix_fallocate(floor->fd, 0, (off_t)floor->bytes))
        bench_die("the floor has no room");
    for (size_t at = 0; at < floor->bytes; at += UNIT)
        if (pwrite(floor->fd, floor->ring, UNIT, (off_t)at) != UNIT)
            bench_die("the floor cannot write");
    fdatasync(floor->fd);
}

struct bench_floor *bench_floor_start(const void *state, size_t bytes, const char *path)
{
    struct bench_floor *floor = calloc(1, sizeof(*floor));
    if (!floor)
        bench_die("out of memory");
    floor->state = state;
    floor->bytes = bytes;
    floor->ring = make_ring();
    prepare_file(floor, path);
    if (io_uring_queue_init(2 * SLOTS, &floor->calls, 0))
        bench_die("the floor has no io_uring");
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
    io_uring_queue_exit(&floor->calls);
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
