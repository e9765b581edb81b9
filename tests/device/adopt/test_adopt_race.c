/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads increment counters all over a buffer while it is adopted and given back, again and again:
 * not one increment may be lost, and the same test must see losses when nobody is stopped while
 * pages move.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "adopt_check.h"
#include "device/adopt/adopt.h"
#include "device/adopt/page_move.h"
#include "device/adopt/uffd.h"

#define BUFFER_BYTES ((size_t)16 << 20)
#define WRITERS 2

struct writer {
    pthread_t thread;
    volatile uint64_t *words; /* this writer's: every WRITERS-th, starting with its own */
    uint64_t rounds;          /* increments of each word: whole rounds are made */
    int index;
    atomic_bool *stop;
    atomic_bool started;
};

static const size_t word_count = BUFFER_BYTES / sizeof(uint64_t);

/* Plain increments, as a program would make them. A stride over pages makes each round meet many
 * pages quickly. */
static void *write_rounds(void *arg)
{
    struct writer *w = arg;
    while (!atomic_load(w->stop)) {
        for (size_t line = (size_t)w->index; line < 512; line += 64)
            for (size_t at = line; at < word_count; at += 512)
                w->words[at]++;
        w->rounds++;
        atomic_store(&w->started, true);
    }
    return NULL;
}

static uint64_t lost_increments(const struct writer *w)
{
    uint64_t lost = 0;
    for (size_t line = (size_t)w->index; line < 512; line += 64)
        for (size_t at = line; at < word_count; at += 512)
            lost += w->rounds - w->words[at];
    return lost;
}

/* What happens to the buffer while the writers run; returns false if nothing could be adopted. */
typedef bool (*churn_fn)(uint8_t *buffer, int cycle);

static bool churn_whole(uint8_t *buffer, int cycle)
{
    struct sw_extent extents[EXTENTS_MAX];
    (void)cycle;
    int n = sw_adopt_get((uint64_t)buffer, BUFFER_BYTES, adopt_handed, extents, EXTENTS_MAX, NULL);
    for (int i = 0; i < n; i++)
        sw_adopt_put(extents[i].segment);
    return n == 1 && extents[0].len_bytes == BUFFER_BYTES;
}

/* Regions that overlap and share pages, given back in another order. */
static bool churn_overlapping(uint8_t *buffer, int cycle)
{
    struct sw_extent extents[4][EXTENTS_MAX];
    int n[4];
    uint64_t step = BUFFER_BYTES / 8 + 1000;
    for (uint64_t i = 0; i < 4; i++)
        n[i] = sw_adopt_get((uint64_t)buffer + i * step, 3 * step, adopt_handed, extents[i],
                            EXTENTS_MAX, NULL);
    for (int i = 0; i < 4; i++) {
        int which = (i + cycle) % 4;
        for (int j = 0; j < n[which]; j++)
            sw_adopt_put(extents[which][j].segment);
    }
    return n[0] == 1 && n[1] == 2;
}

struct churner {
    pthread_t thread;
    uint8_t *buffer;
    churn_fn churn;
    int cycles;
    int refused;
};

static void *churn_run(void *arg)
{
    struct churner *c = arg;
    for (int i = 0; i < c->cycles; i++)
        c->refused += !c->churn(c->buffer, i);
    return NULL;
}

/* Runs writers against `churners` threads of churn; returns the increments lost. */
static uint64_t race(churn_fn churn, int churners, int cycles)
{
    uint8_t *buffer =
        mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(buffer, MAP_FAILED);
    atomic_bool stop = false;
    struct writer writers[WRITERS] = {0};
    for (int i = 0; i < WRITERS; i++) {
        writers[i].words = (volatile uint64_t *)buffer;
        writers[i].index = i;
        writers[i].stop = &stop;
        assert_int_equal(pthread_create(&writers[i].thread, NULL, write_rounds, &writers[i]), 0);
    }
    struct churner churns[4] = {0};
    for (int i = 0; i < churners; i++) {
        churns[i] = (struct churner){.buffer = buffer, .churn = churn, .cycles = cycles};
        assert_int_equal(pthread_create(&churns[i].thread, NULL, churn_run, &churns[i]), 0);
    }
    for (int i = 0; i < churners; i++) {
        pthread_join(churns[i].thread, NULL);
        assert_int_equal(churners == 1 ? churns[i].refused : 0, 0);
    }
    for (int i = 0; i < WRITERS; i++) /* on a busy machine one may not have had its turn */
        while (!atomic_load(&writers[i].started))
            sched_yield();
    atomic_store(&stop, true);
    uint64_t lost = 0;
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(writers[i].thread, NULL);
        lost += lost_increments(&writers[i]);
        assert_true(writers[i].rounds > 0);
    }
    munmap(buffer, BUFFER_BYTES);
    return lost;
}

static void adopt_race__whole_buffer(void **state)
{
    (void)state;
    assert_int_equal(race(churn_whole, 1, 40), 0);
}

static void adopt_race__overlapping_regions(void **state)
{
    (void)state;
    assert_int_equal(race(churn_overlapping, 1, 20), 0);
}

static void adopt_race__overlapping_regions_from_two_threads(void **state)
{
    (void)state;
    assert_int_equal(race(churn_overlapping, 2, 15), 0);
}

static volatile uint64_t *signal_words;
static volatile uint64_t signal_count;

static void store_on_signal(int signal_number)
{
    (void)signal_number;
    for (size_t at = 0; at < word_count; at += 512 * 16)
        signal_words[at]++;
    signal_count++;
}

/* A signal handler of the very thread that moves pages stores to them: it must neither get lost nor
 * wait for itself. */
static void adopt_race__signal_handler_of_the_mover(void **state)
{
    (void)state;
    uint8_t *buffer =
        mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(buffer, MAP_FAILED);
    memset(buffer, 0, BUFFER_BYTES);
    signal_words = (volatile uint64_t *)buffer;
    signal_count = 0;
    struct sigaction old, store = {.sa_handler = store_on_signal, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &store, &old);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 20; i++)
        assert_true(churn_whole(buffer, i));
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &old, NULL);
    assert_true(signal_count > 20);
    for (size_t at = 0; at < word_count; at += 512 * 16)
        assert_int_equal(signal_words[at], signal_count);
    munmap(buffer, BUFFER_BYTES);
}

struct reader {
    pthread_t thread;
    int pipe[2];
    uint64_t *words;
    atomic_bool stop;
    int refused; /* EFAULT: the page was on its way; nothing was taken from the pipe */
    int others;
};

/* Lets the kernel store to the buffer: numbers go through a pipe to every page in turn. */
static void *read_numbers(void *arg)
{
    struct reader *r = arg;
    uint64_t number = 0;
    while (!atomic_load(&r->stop)) {
        number++;
        for (size_t at = 0; at < word_count; at += 512) {
            if (write(r->pipe[1], &number, sizeof(number)) != sizeof(number))
                r->others++;
            ssize_t got;
            while ((got = read(r->pipe[0], &r->words[at], sizeof(number))) < 0 && errno == EFAULT)
                r->refused++;
            if (got != sizeof(number))
                r->others++;
        }
    }
    for (size_t at = 0; at < word_count; at += 512)
        r->others += r->words[at] != number;
    return NULL;
}

/* System calls that store to memory on its way wait too, or, without privileges, fail with EFAULT;
 * they never get lost. */
static void adopt_race__system_calls_that_store(void **state)
{
    (void)state;
    struct sw_uffd uffd;
    assert_int_equal(sw_uffd_open(&uffd), 0);
    sw_uffd_close(&uffd);
    struct reader r = {.words = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
    assert_int_equal(pipe(r.pipe), 0);
    assert_int_equal(pthread_create(&r.thread, NULL, read_numbers, &r), 0);
    for (int i = 0; i < 30; i++)
        assert_true(churn_whole((uint8_t *)r.words, i));
    atomic_store(&r.stop, true);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.others, 0);
    if (!uffd.user_mode_only)
        assert_int_equal(r.refused, 0);
    close(r.pipe[0]);
    close(r.pipe[1]);
    munmap(r.words, BUFFER_BYTES);
}

/* The test can fail: without the brake it does. */
static void adopt_race__unprotected_loses(void **state)
{
    (void)state;
    sw_page_move_unprotected = true;
    uint64_t lost = 0;
    for (int tries = 0; tries < 10 && !lost; tries++)
        lost = race(churn_whole, 1, 10);
    sw_page_move_unprotected = false;
    assert_true(lost > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(adopt_race__whole_buffer),
    cmocka_unit_test(adopt_race__overlapping_regions),
    cmocka_unit_test(adopt_race__overlapping_regions_from_two_threads),
    cmocka_unit_test(adopt_race__signal_handler_of_the_mover),
    cmocka_unit_test(adopt_race__system_calls_that_store),
    cmocka_unit_test(adopt_race__unprotected_loses),
};

static int all_as_nobody(void *arg)
{
    (void)arg;
    become_nobody();
    int failed = cmocka_run_group_tests_name("adopt_race as nobody", tests, NULL, NULL);
    fflush(NULL);
    return failed ? 1 : 0;
}

/* All of it as the user who runs the tests, and, if that is root, again as one without privileges:
 * then userfaultfd stops user mode only, and pages move in another order. */
int main(void)
{
    if (sw_adopt_probe() != SW_ADOPT_OK) {
        printf("SKIP: %s\n", sw_adopt_reason_str(sw_adopt_probe()));
        return 77;
    }
    int failed = cmocka_run_group_tests_name("adopt_race", tests, NULL, NULL);
    if (failed || getuid() != 0)
        return failed;
    return run_in_child(all_as_nobody, NULL);
}
