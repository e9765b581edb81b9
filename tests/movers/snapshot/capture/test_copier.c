/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that processors do not read: a double of a device's stream of copies. Copies are done
 * later, out of order, and only when the stream is polled; the state is reached by them alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "collector.h"
#include "snapshot/capture/copier.h"

enum { UNIT = COLLECTOR_UNIT, STATE = 6 * UNIT - 777, HOST = UNIT + 99, HELD_MAX = 64 };

/* A "device pointer" is DEVICE_BASE and the offset in its memory: to touch it is a fault. */
#define DEVICE_BASE ((uint8_t *)0x10000)

struct stream {
    struct snap_copier copier;
    pthread_mutex_t lock;
    uint8_t *memory; /* the device's */
    struct snap_copy *held[HELD_MAX];
    uint32_t held_count, most_held, polls, ended;
    uint32_t fails_at; /* the copy that fails; 0: none */
};

static bool stream_has(struct snap_copier *copier, const void *data, uint64_t bytes)
{
    (void)copier;
    const uint8_t *at = data;
    return at >= DEVICE_BASE && at + bytes <= DEVICE_BASE + STATE;
}

static int stream_start(struct snap_copier *copier, struct snap_copy *copy)
{
    struct stream *stream = (struct stream *)copier;
    pthread_mutex_lock(&stream->lock);
    assert_true(stream->held_count < HELD_MAX);
    stream->held[stream->held_count++] = copy;
    if (stream->held_count > stream->most_held)
        stream->most_held = stream->held_count;
    pthread_mutex_unlock(&stream->lock);
    return 0;
}

/* Each third look ends one of them: any. */
static void stream_poll(struct snap_copier *copier)
{
    struct stream *stream = (struct stream *)copier;
    pthread_mutex_lock(&stream->lock);
    if (stream->held_count && stream->polls++ % 3 == 0) {
        const uint32_t which = (uint32_t)rand() % stream->held_count;
        struct snap_copy *copy = stream->held[which];
        stream->held[which] = stream->held[--stream->held_count];
        const bool fails = ++stream->ended == stream->fails_at;
        memcpy(copy->into, stream->memory + ((const uint8_t *)copy->from - DEVICE_BASE),
               fails ? copy->bytes / 2 : copy->bytes);
        atomic_store_explicit(&copy->state, fails ? -EIO : 0, memory_order_release);
    }
    pthread_mutex_unlock(&stream->lock);
}

static const struct snap_copier_ops stream_ops = {
    .has = stream_has, .start = stream_start, .poll = stream_poll};

struct rig {
    struct collector collector;
    struct stream stream;
    uint8_t *host;
};

static void open_rig(struct rig *rig, uint32_t ring_units, uint32_t helpers)
{
    struct snap_capture_options options = collector_options(ring_units);
    uint32_t bad;
    memset(rig, 0, sizeof(*rig));
    rig->stream.copier.ops = &stream_ops;
    pthread_mutex_init(&rig->stream.lock, NULL);
    rig->stream.memory = malloc(STATE);
    rig->host = malloc(HOST);
    for (size_t i = 0; i < STATE; i++)
        rig->stream.memory[i] = (uint8_t)rand();
    memset(rig->host, 0x5a, HOST);
    options.helpers = helpers;
    options.copier = &rig->stream.copier;
    collector_open(&rig->collector, &options, 16);
    const struct snap_capture_range ranges[] = {{.data = DEVICE_BASE, .bytes = STATE},
                                                {.data = rig->host, .bytes = HOST, .unit = 6}};
    assert_int_equal(snap_capture_describe(rig->collector.capture, ranges, 2, &bad), 0);
}

static void close_rig(struct rig *rig)
{
    assert_int_equal(rig->collector.other_sums, 0);
    collector_close(&rig->collector);
    assert_int_equal(rig->stream.held_count, 0);
    pthread_mutex_destroy(&rig->stream.lock);
    free(rig->stream.memory);
    free(rig->host);
}

static void begin_capture(struct rig *rig)
{
    uint32_t bad;
    assert_int_equal(snap_capture_begin(rig->collector.capture, &bad), 0);
}

static void copier__brings_what_only_it_can_read(void **state)
{
    const uint32_t rings[] = {16, 2};
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct rig rig;
        open_rig(&rig, rings[i], 1 + i);
        for (int round = 0; round < 3; round++) {
            rig.stream.memory[(size_t)rand() % STATE]++;
            begin_capture(&rig);
            assert_int_equal(
                snap_capture_gate(rig.collector.capture, round ? SW_SNAP_HELP : SW_SNAP_WAIT, 0),
                SNAP_CAPTURE_CLEAN);
            assert_int_equal(collector_wait(&rig.collector), SNAP_CAPTURE_CLEAN);
            assert_memory_equal(rig.collector.image, rig.stream.memory, STATE);
            assert_memory_equal(rig.collector.image + 6 * UNIT, rig.host, HOST);
        }
        assert_true(rig.stream.most_held > 1); /* several are under way at a time */
        close_rig(&rig);
    }
}

static void copier__has_its_memory_looked_at_twice(void **state)
{
    struct rig rig;
    struct snap_capture_info info;
    (void)state;
    open_rig(&rig, 2, 1);
    rig.collector.is_lazy = true;
    begin_capture(&rig);
    do {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        snap_capture_info_of(rig.collector.capture, &info);
    } while (info.units_copied < 2);
    pthread_mutex_lock(&rig.stream.lock);
    rig.stream.memory[5 * UNIT]++;
    pthread_mutex_unlock(&rig.stream.lock);
    rig.collector.is_lazy = false;
    assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, 0), SNAP_CAPTURE_CLEAN);
    assert_int_equal(collector_wait(&rig.collector), SNAP_CAPTURE_CLEAN);
    assert_int_equal(rig.collector.taken_again, 1);
    assert_memory_equal(rig.collector.image, rig.stream.memory, STATE);
    close_rig(&rig);
}

enum { COPIES = 24 }; /* of the device's six units, once */

/* The capture that a copy has failed in. */
static void expect_failure(struct rig *rig)
{
    struct snap_capture_info info;
    uint32_t torn = 99;
    assert_int_equal(snap_capture_torn(rig->collector.capture, &torn, 1), 1);
    assert_int_equal(torn, 0);
    snap_capture_info_of(rig->collector.capture, &info);
    assert_int_equal(info.code, -EIO);
}

/*
 * A device that fails fails the snapshot, and nothing is under way behind its end.
 *
 * COPIES of them bring the units, and as many are summed, before or behind these. Where the gate
 * comes amid the first sums, it begins with the units at once: what a helper was just summing does
 * not count any more, and neither does its failure. That is one of the first three units, since
 * the gate waits for sums of which half are done. A capture without failure has all bytes.
 */
static void copier__may_fail(void **state)
{
    (void)state;
    for (uint32_t copy = 1; copy < 100; copy += 13) {
        struct rig rig;
        open_rig(&rig, 16, 1);
        rig.stream.fails_at = copy;
        begin_capture(&rig);
        const enum snap_capture_outcome outcome =
            snap_capture_gate(rig.collector.capture, SW_SNAP_WAIT, 0);
        if (outcome == SNAP_CAPTURE_CLEAN) {
            assert_true(copy <= COPIES / 2 || copy > 2 * COPIES);
            assert_int_equal(collector_wait(&rig.collector), SNAP_CAPTURE_CLEAN);
            assert_memory_equal(rig.collector.image, rig.stream.memory, STATE);
        } else {
            assert_true(copy <= 2 * COPIES + COPIES / 2);
            assert_int_equal(outcome, SNAP_CAPTURE_TORN);
            expect_failure(&rig);
        }
        rig.stream.fails_at = 0;
        begin_capture(&rig);
        assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, 0),
                         SNAP_CAPTURE_CLEAN);
        close_rig(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copier__brings_what_only_it_can_read),
        cmocka_unit_test(copier__has_its_memory_looked_at_twice),
        cmocka_unit_test(copier__may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
