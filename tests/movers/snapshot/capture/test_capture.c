/* SPDX-License-Identifier: BSD-2-Clause */
/* A capture, its gates and its ends; with sums, and with the kernel's word where it gives one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collector.h"
#include "common/time/clock.h"
#include "snapshot/capture/pages.h"

/* ThreadSanitizer's own handler does not let a fault end by siglongjmp(). */
#if defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#endif
#endif
#ifndef HAS_TSAN
#define HAS_TSAN 0
#endif
enum { UNIT = COLLECTOR_UNIT, LARGE_UNITS = 5, SMALL = 1000, RANGES = 4, UNITS_MAX = 16 };
enum { LARGE = LARGE_UNITS * UNIT - 3000, ODD = UNIT + 5000 };

/* Two large ranges, one of which begins in the middle of a page, and two that share a unit. */
struct rig {
    struct collector collector;
    uint8_t *large, *odd_pages, *odd, *small[2];
    struct snap_capture_range ranges[RANGES];
};

static void fill_random(uint8_t *data, size_t bytes)
{
    static uint64_t state = 88172645463325252ull;
    for (size_t i = 0; i < bytes; i += sizeof(state)) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(data + i, &state, bytes - i < sizeof(state) ? bytes - i : sizeof(state));
    }
}

static void open_rig(struct rig *rig, const struct snap_capture_options *options)
{
    uint32_t bad;
    collector_open(&rig->collector, options, UNITS_MAX);
    rig->large = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rig->odd_pages = malloc(ODD + 32);
    rig->odd = rig->odd_pages + 16 - (uintptr_t)rig->odd_pages % 16 + 16;
    fill_random(rig->large, LARGE);
    fill_random(rig->odd, ODD);
    for (int i = 0; i < 2; i++) {
        rig->small[i] = malloc(SMALL);
        fill_random(rig->small[i], SMALL);
    }
    rig->ranges[0] = (struct snap_capture_range){.data = rig->large, .bytes = LARGE};
    rig->ranges[1] =
        (struct snap_capture_range){.data = rig->odd, .bytes = ODD, .unit = LARGE_UNITS};
    for (uint32_t i = 0; i < 2; i++)
        rig->ranges[2 + i] = (struct snap_capture_range){
            .data = rig->small[i], .bytes = SMALL, .unit = LARGE_UNITS + 2, .offset = 1024 * i};
    assert_int_equal(snap_capture_describe(rig->collector.capture, rig->ranges, RANGES, &bad), 0);
}

static void close_rig(struct rig *rig)
{
    assert_int_equal(rig->collector.other_sums, 0);
    collector_close(&rig->collector);
    munmap(rig->large, LARGE);
    free(rig->odd_pages);
    free(rig->small[0]);
    free(rig->small[1]);
}

static void begin_capture(struct rig *rig)
{
    uint32_t bad;
    assert_int_equal(snap_capture_begin(rig->collector.capture, &bad), 0);
}

static struct snap_capture_info info_of(struct rig *rig)
{
    struct snap_capture_info info;
    snap_capture_info_of(rig->collector.capture, &info);
    return info;
}

/* The image is the state. */
static void check_image(const struct rig *rig)
{
    static const uint8_t zeroes[8192];
    const uint8_t *image = rig->collector.image, *shared = image + (size_t)(LARGE_UNITS + 2) * UNIT;
    assert_memory_equal(image, rig->large, LARGE);
    assert_memory_equal(image + LARGE, zeroes, 3000);
    assert_memory_equal(image + (size_t)LARGE_UNITS * UNIT, rig->odd, ODD);
    assert_memory_equal(image + (size_t)LARGE_UNITS * UNIT + ODD, zeroes, 8192 - 5000);
    assert_memory_equal(shared, rig->small[0], SMALL);
    assert_memory_equal(shared + SMALL, zeroes, 24);
    assert_memory_equal(shared + 1024, rig->small[1], SMALL);
    assert_memory_equal(shared + 1024 + SMALL, zeroes, 4096 - 1024 - SMALL);
}

/* Until helpers can do no more, for want of room or for a gate. */
static void rest_until_copied(struct rig *rig, uint32_t units)
{
    while (info_of(rig).units_copied < units)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static enum sw_snap_look looks[] = {SW_SNAP_LOOK_SUMS, SW_SNAP_LOOK_PAGES, SW_SNAP_LOOK_NEVER};

/* Whether the kernel tells here which pages were written. */
static bool has_pages(void)
{
    struct snap_pages pages;
    const bool has = snap_pages_open(&pages) == 0;
    snap_pages_close(&pages);
    return has;
}

static void capture__shows_the_state_after_each_gate(void **state)
{
    const enum sw_snap_gate ways[] = {SW_SNAP_HELP, SW_SNAP_WAIT, SW_SNAP_HELP};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct snap_capture_options options = collector_options(i == 2 ? 2 : 16);
        struct rig rig = {0};
        options.look = looks[i];
        options.helpers = i + 1;
        open_rig(&rig, &options);
        for (int round = 0; round < 9; round++) {
            begin_capture(&rig);
            assert_int_equal(snap_capture_gate(rig.collector.capture, ways[round % 3], 0),
                             SNAP_CAPTURE_CLEAN);
            assert_int_equal(collector_wait(&rig.collector), SNAP_CAPTURE_CLEAN);
            check_image(&rig);
            fill_random(rig.odd, ODD);
            rig.large[(size_t)rand() % LARGE]++;
        }
        const struct snap_capture_info info = info_of(&rig);
        assert_int_equal(info.by_pages, looks[i] == SW_SNAP_LOOK_PAGES && has_pages());
        assert_int_equal(info.copied_bytes, info.units * UNIT - UNIT + 8192 - UNIT + 4096);
        assert_int_equal(info.changed_bytes, 0);
        close_rig(&rig);
    }
}

/* A program that comes late finds all done, and SKIP skips nothing. */
static void capture__ends_before_the_gate(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct snap_capture_options options = collector_options(16);
        struct rig rig = {0};
        options.look = looks[i];
        open_rig(&rig, &options);
        begin_capture(&rig);
        assert_int_equal(collector_wait(&rig.collector), SNAP_CAPTURE_CLEAN);
        fill_random(rig.small[0], SMALL);
        assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_SKIP, 0),
                         SNAP_CAPTURE_CLEAN);
        assert_int_equal(info_of(&rig).gate_bytes, 0);
        close_rig(&rig);
    }
}

static void gate__skips_or_comes_too_late_where_the_ring_is_full(void **state)
{
    struct rig rig = {0};
    struct snap_capture_options options = collector_options(2);
    (void)state;
    open_rig(&rig, &options);
    rig.collector.is_lazy = true;
    begin_capture(&rig);
    rest_until_copied(&rig, 2);
    assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_SKIP, 0),
                     SNAP_CAPTURE_SKIPPED);
    assert_int_equal(info_of(&rig).slots_free, 2);
    begin_capture(&rig);
    const uint64_t deadline_ns = mover_now_ns() + 20 * NS_PER_MS;
    assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, deadline_ns),
                     SNAP_CAPTURE_LATE);
    assert_true(mover_now_ns() >= deadline_ns);
    begin_capture(&rig);
    rest_until_copied(&rig, 2);
    snap_capture_abort(rig.collector.capture);
    assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_WAIT, 0),
                     SNAP_CAPTURE_ABORTED);
    rig.collector.is_lazy = false;
    begin_capture(&rig);
    assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_WAIT, 0), SNAP_CAPTURE_CLEAN);
    assert_int_equal(collector_wait(&rig.collector), SNAP_CAPTURE_CLEAN);
    check_image(&rig);
    close_rig(&rig);
}

/* A write behind begin, to a unit that is not copied yet: it is found, and copied again. */
static void gate__copies_again_what_was_written_meanwhile(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct snap_capture_options options = collector_options(2);
        struct rig rig = {0};
        options.look = looks[i];
        open_rig(&rig, &options);
        rig.collector.is_lazy = true;
        begin_capture(&rig);
        rest_until_copied(&rig, 2);
        rig.large[4 * UNIT + 17]++;
        rig.odd[0]++;
        rig.odd[ODD - 1]++;
        rig.collector.is_lazy = false;
        rest_until_copied(&rig, 8);
        assert_int_equal(info_of(&rig).outcome, SNAP_CAPTURE_UNDER_WAY);
        assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, 0),
                         SNAP_CAPTURE_CLEAN);
        assert_int_equal(collector_wait(&rig.collector), SNAP_CAPTURE_CLEAN);
        assert_int_equal(rig.collector.taken_again, 3);
        check_image(&rig);
        close_rig(&rig);
    }
}

/* A program that gives pages back changes them, too; state that was never written is zeroes. */
static void gate__copies_again_what_was_discarded_meanwhile(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct snap_capture_options options = collector_options(2);
        struct rig rig = {0};
        options.look = looks[i];
        open_rig(&rig, &options);
        assert_int_equal(madvise(rig.large + 3 * UNIT, UNIT / 2, MADV_DONTNEED), 0);
        rig.collector.is_lazy = true;
        begin_capture(&rig);
        rest_until_copied(&rig, 2);
        assert_int_equal(madvise(rig.large + 4 * UNIT, UNIT / 2, MADV_DONTNEED), 0);
        rig.odd[UNIT / 2]++;
        assert_int_equal(madvise(rig.large, UNIT / 2, MADV_DONTNEED), 0); /* behind its copy */
        rig.collector.is_lazy = false;
        assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, 0),
                         SNAP_CAPTURE_CLEAN);
        assert_int_equal(collector_wait(&rig.collector), SNAP_CAPTURE_CLEAN);
        assert_int_equal(rig.collector.taken_again, 3);
        check_image(&rig);
        close_rig(&rig);
    }
}

struct writer {
    pthread_t thread;
    _Atomic bool is_ending;
    volatile uint8_t *at;
};

static void *write_on(void *arg)
{
    struct writer *writer = arg;
    while (!writer->is_ending)
        (*writer->at)++;
    return NULL;
}

static void gate__names_what_does_not_stand_still(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct snap_capture_options options = collector_options(16);
        struct rig rig = {0};
        uint32_t torn[RANGES];
        struct writer writer = {0};
        options.look = looks[i];
        open_rig(&rig, &options);
        writer.at = rig.odd + UNIT / 2;
        assert_int_equal(pthread_create(&writer.thread, NULL, write_on, &writer), 0);
        /* The writer may get no processor meanwhile, and a byte has few values to see. */
        const uint64_t until_ns = mover_now_ns() + 60 * NS_PER_S;
        while (!info_of(&rig).torn && mover_now_ns() < until_ns) {
            begin_capture(&rig);
            snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, 0);
        }
        assert_int_equal(info_of(&rig).outcome, SNAP_CAPTURE_TORN);
        assert_int_equal(snap_capture_torn(rig.collector.capture, torn, RANGES), 1);
        assert_int_equal(torn[0], 1);
        writer.is_ending = true;
        pthread_join(writer.thread, NULL);
        begin_capture(&rig);
        assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, 0),
                         SNAP_CAPTURE_CLEAN);
        assert_int_equal(info_of(&rig).torn, 0);
        close_rig(&rig);
    }
}

/* Tensor after tensor: each is written as soon as its gate lets it go. */
static void gate_ranges__lets_ranges_go_one_by_one(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct snap_capture_options options = collector_options(3);
        struct rig rig = {0}, before = {0};
        options.look = looks[i];
        open_rig(&rig, &options);
        before.large = malloc(LARGE);
        before.odd = malloc(ODD);
        for (int k = 0; k < 2; k++)
            memcpy(before.small[k] = malloc(SMALL), rig.small[k], SMALL);
        memcpy(before.large, rig.large, LARGE);
        memcpy(before.odd, rig.odd, ODD);
        begin_capture(&rig);
        assert_int_not_equal(snap_capture_gate_ranges(rig.collector.capture, SW_SNAP_HELP, 2, 2, 0),
                             SNAP_CAPTURE_TORN);
        fill_random(rig.small[0], SMALL);
        fill_random(rig.small[1], SMALL);
        assert_int_not_equal(snap_capture_gate_ranges(rig.collector.capture, SW_SNAP_HELP, 1, 1, 0),
                             SNAP_CAPTURE_TORN);
        fill_random(rig.odd, ODD);
        snap_capture_gate_ranges(rig.collector.capture, SW_SNAP_WAIT, 0, 1, 0);
        fill_random(rig.large, LARGE);
        assert_int_equal(collector_wait(&rig.collector), SNAP_CAPTURE_CLEAN);
        memcpy(before.collector.image = malloc((size_t)UNITS_MAX * UNIT), rig.collector.image,
               (size_t)UNITS_MAX * UNIT);
        check_image(&before);
        free(before.large);
        free(before.odd);
        free(before.small[0]);
        free(before.small[1]);
        free(before.collector.image);
        close_rig(&rig);
    }
}

static void *allow_one(void *arg)
{
    struct collector *collector = arg;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    collector->allowance = 1;
    return NULL;
}

/* What was let go has its instant: no later one can be found for the rest. */
static void gate_ranges__tears_what_is_written_behind_its_back(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct snap_capture_options options = collector_options(2);
        struct rig rig = {0};
        uint32_t torn[RANGES];
        pthread_t allower;
        options.look = looks[i];
        open_rig(&rig, &options);
        rig.collector.is_lazy = true;
        begin_capture(&rig);
        rest_until_copied(&rig, 2); /* the ring is full of others when the gate comes */
        assert_int_equal(pthread_create(&allower, NULL, allow_one, &rig.collector), 0);
        assert_int_equal(snap_capture_gate_ranges(rig.collector.capture, SW_SNAP_HELP, 2, 2, 0),
                         SNAP_CAPTURE_UNDER_WAY);
        pthread_join(allower, NULL);
        rig.small[0][0]++;
        rig.large[4 * UNIT + 17]++; /* breaks the rule */
        rig.collector.is_lazy = false;
        assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, 0),
                         SNAP_CAPTURE_TORN);
        assert_int_equal(snap_capture_torn(rig.collector.capture, torn, RANGES), 1);
        assert_int_equal(torn[0], 0);
        close_rig(&rig);
    }
}

static void begin__refuses_what_is_not_mapped(void **state)
{
    struct rig rig = {0};
    struct snap_capture_options options = collector_options(2);
    uint32_t bad = 99;
    (void)state;
    open_rig(&rig, &options);
    rig.collector.is_lazy = true;
    begin_capture(&rig);
    rest_until_copied(&rig, 2);
    assert_int_equal(munmap(rig.large, LARGE), 0); /* amid a capture */
    rig.collector.is_lazy = false;
    assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, 0), SNAP_CAPTURE_TORN);
    assert_int_equal(snap_capture_torn(rig.collector.capture, &bad, 1), 1);
    assert_int_equal(bad, 0);
    assert_int_equal(info_of(&rig).code, -EFAULT);
    bad = 99;
    assert_int_equal(snap_capture_begin(rig.collector.capture, &bad), -EFAULT);
    assert_int_equal(bad, 0);
    bad = 99;
    assert_int_equal(snap_capture_describe(rig.collector.capture, rig.ranges, RANGES, &bad),
                     -EFAULT);
    assert_int_equal(bad, 0);
    assert_int_equal(snap_capture_begin(rig.collector.capture, &bad), 0); /* of no state */
    assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_SKIP, 0), SNAP_CAPTURE_CLEAN);
    close_rig(&rig);
}

#if !HAS_TSAN
/* The pages are mapped still, so nothing but the read itself finds it. */
static void gate__memory_that_vanishes_is_torn(void **state)
{
    struct snap_capture_options options = collector_options(2);
    (void)state;
    for (uint32_t is_file = 0; is_file < 2; is_file++) {
        struct rig rig = {0};
        uint32_t bad = 99;
        const int fd = memfd_create("state", MFD_CLOEXEC);
        open_rig(&rig, &options);
        assert_int_equal(ftruncate(fd, LARGE), 0);
        if (is_file)
            assert_ptr_equal(
                mmap(rig.large, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
                rig.large);
        rig.collector.is_lazy = true;
        begin_capture(&rig);
        rest_until_copied(&rig, 2);
        assert_int_equal(is_file ? ftruncate(fd, 0) : mprotect(rig.large, LARGE, PROT_NONE), 0);
        rig.collector.is_lazy = false;
        assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, 0),
                         SNAP_CAPTURE_TORN);
        assert_int_equal(snap_capture_torn(rig.collector.capture, &bad, 1), 1);
        assert_int_equal(bad, 0);
        assert_int_equal(info_of(&rig).code, -EFAULT);
        close_rig(&rig);
        close(fd);
    }
}

static void *forbid_soon(void *context)
{
    static unsigned turns;
    const struct rig *rig = context;
    usleep(turns++ * 97 % 3000);
    mprotect(rig->large + LARGE / 2, LARGE / 2, PROT_NONE);
    return NULL;
}

static void gate__memory_that_vanishes_at_any_time_ends_no_program(void **state)
{
    struct snap_capture_options options = collector_options(2);
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct rig rig = {0};
        pthread_t forbidder;
        uint32_t bad;
        open_rig(&rig, &options);
        assert_int_equal(pthread_create(&forbidder, NULL, forbid_soon, &rig), 0);
        snap_capture_begin(rig.collector.capture, &bad);
        snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, 0);
        pthread_join(forbidder, NULL);
        close_rig(&rig);
    }
}

static sigjmp_buf back_to_program;

static void go_back(int number)
{
    siglongjmp(back_to_program, number);
}

/* Whether the program's own handler has the faults of its own reads. */
static void assert_own_fault(const struct rig *rig)
{
    const volatile uint8_t *forbidden = rig->large;
    const int number = sigsetjmp(back_to_program, 1);
    if (!number)
        assert_int_equal(*forbidden, 256); /* no byte is */
    assert_int_equal(number, SIGSEGV);
}

static void faults__of_the_program_are_its_own(void **state)
{
    struct snap_capture_options options = collector_options(2);
    const struct sigaction own = {.sa_handler = go_back};
    struct sigaction before, after;
    struct rig rig = {0};
    (void)state;
    assert_int_equal(sigaction(SIGSEGV, &own, &before), 0);
    open_rig(&rig, &options);
    assert_int_equal(mprotect(rig.large, LARGE, PROT_NONE), 0);
    assert_own_fault(&rig);
    assert_int_equal(mprotect(rig.large, LARGE, PROT_READ | PROT_WRITE), 0);
    close_rig(&rig);
    assert_int_equal(sigaction(SIGSEGV, &before, &after), 0);
    assert_ptr_equal(after.sa_handler, go_back);
}
#endif

static void describe__refuses_ranges_that_lie_wrong(void **state)
{
    struct rig rig = {0};
    struct snap_capture_options options = collector_options(2);
    uint32_t bad = 99;
    (void)state;
    open_rig(&rig, &options);
    struct snap_capture_range ranges[RANGES];
    memcpy(ranges, rig.ranges, sizeof(ranges));
    ranges[3].offset = 999; /* within the one before */
    assert_int_equal(snap_capture_describe(rig.collector.capture, ranges, RANGES, &bad), -EINVAL);
    assert_int_equal(bad, 3);
    memcpy(ranges, rig.ranges, sizeof(ranges));
    ranges[0].offset = 64; /* of several units */
    assert_int_equal(snap_capture_describe(rig.collector.capture, ranges, RANGES, &bad), -EINVAL);
    assert_int_equal(bad, 0);
    begin_capture(&rig);
    assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, 0), SNAP_CAPTURE_CLEAN);
    assert_int_equal(snap_capture_describe(rig.collector.capture, rig.ranges, RANGES, &bad), 0);
    rig.collector.is_lazy = true;
    begin_capture(&rig);
    assert_int_equal(snap_capture_begin(rig.collector.capture, &bad), -EBUSY);
    assert_int_equal(snap_capture_describe(rig.collector.capture, rig.ranges, RANGES, &bad),
                     -EBUSY);
    close_rig(&rig); /* amid a capture */
}

static void capture__is_not_a_childs(void **state)
{
    struct rig rig = {0};
    struct snap_capture_options options = collector_options(2);
    uint32_t bad;
    int status;
    (void)state;
    open_rig(&rig, &options);
    rig.collector.is_lazy = true;
    begin_capture(&rig);
    const pid_t child = fork();
    if (child == 0) {
        struct snap_captured unit;
        const bool is_right =
            snap_capture_begin(rig.collector.capture, &bad) == -ECHILD &&
            snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, 0) == SNAP_CAPTURE_NONE &&
            !snap_capture_take(rig.collector.capture, &unit);
        snap_capture_close(rig.collector.capture);
        _exit(is_right ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rig.collector.is_lazy = false;
    assert_int_equal(snap_capture_gate(rig.collector.capture, SW_SNAP_HELP, 0), SNAP_CAPTURE_CLEAN);
    close_rig(&rig);
}

/* The handle is still there when the program's end frees what is its. */
static struct rig unfinished;

static void capture__may_be_under_way_when_the_program_ends(void **state)
{
    struct snap_capture_options options = collector_options(2);
    int status;
    (void)state;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(120);
        open_rig(&unfinished, &options);
        begin_capture(&unfinished);
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capture__shows_the_state_after_each_gate),
        cmocka_unit_test(capture__ends_before_the_gate),
        cmocka_unit_test(gate__skips_or_comes_too_late_where_the_ring_is_full),
        cmocka_unit_test(gate__copies_again_what_was_written_meanwhile),
        cmocka_unit_test(gate__copies_again_what_was_discarded_meanwhile),
        cmocka_unit_test(gate__names_what_does_not_stand_still),
        cmocka_unit_test(gate_ranges__lets_ranges_go_one_by_one),
        cmocka_unit_test(gate_ranges__tears_what_is_written_behind_its_back),
        cmocka_unit_test(begin__refuses_what_is_not_mapped),
#if !HAS_TSAN
        cmocka_unit_test(gate__memory_that_vanishes_is_torn),
        cmocka_unit_test(gate__memory_that_vanishes_at_any_time_ends_no_program),
        cmocka_unit_test(faults__of_the_program_are_its_own),
#endif
        cmocka_unit_test(describe__refuses_ranges_that_lie_wrong),
        cmocka_unit_test(capture__is_not_a_childs),
        cmocka_unit_test(capture__may_be_under_way_when_the_program_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
