/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap whose pages are adopted, and forks while other threads allocate: the child's heap is
 * whole. libc locks its allocator after all fork handlers have run, and just before the clone. What
 * those threads store until then belongs to the child, too: pages that were copied before it have
 * lists of free chunks that contradict each other.
 */
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "adopt_rig.h"

enum { THREADS = 3, CHUNKS = 512, FORKS = 10, CHUNK_MAX_BYTES = 3000, CHILD_ROUNDS = 5000 };
enum { HEAP_BYTES = 4 << 20, CHILD_SECONDS = 30 };
enum { PERIOD_MIN_US = 700, PERIOD_MAX_US = 50000 };

struct churn {
    pthread_t thread;
    _Atomic bool stop;
    uint32_t seed;
    void *chunks[CHUNKS];
};

/* xorshift: no lock, and no state of libc. */
static uint32_t next_random(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

static void churn_once(struct churn *churn)
{
    void **chunk = &churn->chunks[next_random(&churn->seed) % CHUNKS];
    const size_t len = 1 + next_random(&churn->seed) % CHUNK_MAX_BYTES;
    if (*chunk && next_random(&churn->seed) % 4 == 0) {
        *chunk = realloc(*chunk, len);
        return;
    }
    free(*chunk);
    *chunk = malloc(len);
}

static void *churn_on(void *arg)
{
    struct churn *churn = arg;
    while (!atomic_load(&churn->stop))
        churn_once(churn);
    return NULL;
}

/* libc ends the child by SIGABRT or SIGSEGV where a list of its heap is broken. */
static void child_use_heap(struct churn *own)
{
    signal(SIGSEGV, SIG_DFL); /* cmocka's handler allocates */
    alarm(CHILD_SECONDS);
    for (int i = 0; i < CHILD_ROUNDS; i++)
        churn_once(own);
    for (int i = 0; i < CHUNKS; i++)
        free(own->chunks[i]);
    (void)mallinfo2();
    malloc_trim(0);
}

/* Free chunks of all sizes, and so bins that are in use, on both sides of the pages' edges. */
static void heap_fill(struct churn *own)
{
    void *top = sbrk(0);
    while ((uint8_t *)sbrk(0) < (uint8_t *)top + HEAP_BYTES) {
        if (!malloc(CHUNK_MAX_BYTES))
            abort();
        churn_once(own);
    }
}

static void child__has_a_whole_heap(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* it has an allocator of its own */
#endif
    static struct churn churns[THREADS], own = {.seed = 77};
    mallopt(M_ARENA_MAX, 1); /* all threads use the heap that is adopted */
    uint8_t *first = malloc(1);
    heap_fill(&own);
    uint8_t *base = (uint8_t *)((uintptr_t)first / PAGE * PAGE + PAGE);
    const size_t len = (size_t)((uint8_t *)sbrk(0) - base) / PAGE * PAGE;
    assert_true(adopt_range(base, len, NULL) > 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        churns[i].seed = i + 1;
        assert_int_equal(pthread_create(&churns[i].thread, NULL, churn_on, &churns[i]), 0);
    }
    int broken = 0;
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (!child) {
            own.seed += (uint32_t)i;
            child_use_heap(&own);
            _exit(0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        broken += status != 0;
    }
    for (int i = 0; i < THREADS; i++) {
        atomic_store(&churns[i].stop, true);
        pthread_join(churns[i].thread, NULL);
    }
    free(first);
    assert_int_equal(broken, 0);
}

static _Atomic int heard;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&heard, 1);
}

/* Whether SIGSYS and the mask are as `set` made them, and system calls are not shown any more. */
static bool signals_are_kept(void)
{
    struct sigaction now;
    sigset_t mask;
    sigaction(SIGSYS, NULL, &now);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    const int before = heard;
    raise(SIGUSR2);
    return now.sa_handler == on_signal && sigismember(&mask, SIGSYS) &&
           !sigismember(&mask, SIGUSR2) && sigismember(&mask, SIGUSR1) && heard == before + 1;
}

static void fork__leaves_signals_as_they_were(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(PAGE);
    struct sw_segment *segment = adopt_whole(base, PAGE);
    sigset_t ours, before;
    sigemptyset(&ours);
    sigaddset(&ours, SIGSYS);
    sigaddset(&ours, SIGUSR1);
    signal(SIGSYS, on_signal);
    signal(SIGUSR2, on_signal);
    pthread_sigmask(SIG_SETMASK, &ours, &before);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (!child)
            _exit(signals_are_kept() ? 0 : 1);
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_true(signals_are_kept());
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    signal(SIGSYS, SIG_DFL);
    signal(SIGUSR2, SIG_DFL);
    sw_adopt_put(segment);
}

/* Signals come all the time while the thread forks: their handlers make system calls. */
static void *signal_on(void *arg)
{
    const pthread_t *to = arg;
    for (int i = 0; i < 2000; i++) {
        pthread_kill(*to, SIGUSR2);
        usleep(50);
    }
    return NULL;
}

static void fork__amid_signals(void **state)
{
    (void)state;
    uint8_t *base = buffer_new(PAGE);
    struct sw_segment *segment = adopt_whole(base, PAGE);
    pthread_t self = pthread_self(), thread;
    heard = 0;
    signal(SIGUSR2, on_signal);
    base[1] = 5;
    assert_int_equal(pthread_create(&thread, NULL, signal_on, &self), 0);
    for (int forks = 0; heard < 50 || forks < 50; forks++) {
        pid_t child = fork();
        if (!child)
            _exit(base[1]);
        int status = -1;
        while (waitpid(child, &status, 0) != child) {
        }
        assert_int_equal(WEXITSTATUS(status), 5);
    }
    pthread_join(thread, NULL);
    signal(SIGUSR2, SIG_DFL);
    sw_adopt_put(segment);
}

static void on_signal_fork(int number)
{
    pid_t child = fork();
    if (!child)
        _exit(0);
    if (child > 0)
        waitpid(child, NULL, 0);
    on_signal(number);
}

/* A clone that a signal interrupts begins anew. It never ends where signals are closer together
 * than a fork takes. */
static suseconds_t signal_period_us(void)
{
    struct timeval begun, ended, took;
    gettimeofday(&begun, NULL);
    pid_t child = fork();
    if (!child)
        _exit(0);
    if (child > 0)
        waitpid(child, NULL, 0);
    gettimeofday(&ended, NULL);
    timersub(&ended, &begun, &took);
    const suseconds_t us = took.tv_sec ? PERIOD_MAX_US : 4 * took.tv_usec;
    return us < PERIOD_MIN_US ? PERIOD_MIN_US : us > PERIOD_MAX_US ? PERIOD_MAX_US : us;
}

/* Our handlers hold locks from before the clone until after it. */
static _Noreturn void fork_amid_forks(void)
{
    const suseconds_t period_us = signal_period_us();
    const struct itimerval often = {.it_interval.tv_usec = period_us,
                                    .it_value.tv_usec = period_us},
                           off = {0};
    sigset_t mask;
    heard = 0;
    signal(SIGALRM, on_signal_fork);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int forks = 0; heard < 200 || forks < 200; forks++) {
        pid_t child = fork();
        if (!child)
            _exit(0);
        if (child > 0)
            waitpid(child, NULL, 0);
    }
    setitimer(ITIMER_REAL, &off, NULL);
    sigprocmask(SIG_SETMASK, NULL, &mask);
    _exit(!sigisemptyset(&mask));
}

/* Before this process has threads: libc's own fork() would wait for its own locks with them. */
static void fork__in_a_handler_that_interrupts_a_fork(void **state)
{
    (void)state;
    int status = -1;
    pid_t child = fork();
    if (!child)
        fork_amid_forks();
    for (int i = 0; i < CHILD_SECONDS * 100 && waitpid(child, &status, WNOHANG) != child; i++)
        usleep(10000);
    if (status)
        kill(child, SIGKILL);
    assert_int_equal(status, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(fork__in_a_handler_that_interrupts_a_fork),
    cmocka_unit_test(fork__leaves_signals_as_they_were),
    cmocka_unit_test(fork__amid_signals),
    cmocka_unit_test(child__has_a_whole_heap),
};

int main(void)
{
    if (adopt_is_refused())
        return 77;
    return cmocka_run_group_tests_name("fork_heap", tests, NULL, NULL);
}
