/* SPDX-License-Identifier: BSD-2-Clause */
/* Pages that a child of fork() touches before its handlers run, and faults that are not theirs. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "adopt_rig.h"

enum { FORKS = 5, FOUND = 7 };
/* glibc puts the head of each thread's arena at such an address. */
#define ARENA_BYTES (UINT64_C(64) << 20)

static uint8_t *page_of(const void *at)
{
    return (uint8_t *)((uintptr_t)at / PAGE * PAGE);
}

static int end_of(pid_t child)
{
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* Forks, and lets the child use what the page holds. */
static void fork_with(const void *base, void (*use)(void))
{
    struct sw_segment *segment = adopt_whole(base, PAGE);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (!child) {
            bool is_private;
            mappings_within(base, PAGE, &is_private);
            use();
            _exit(is_private ? 0 : 1);
        }
        assert_int_equal(end_of(child), 0);
        use();
    }
    sw_adopt_put(segment);
}

static FILE *file;

static void use_file(void)
{
    rewind(file);
    if (fgetc(file) != 0)
        _exit(2);
}

static void child__has_files_on_adopted_pages(void **state)
{
    (void)state;
    file = fopen("/dev/zero", "r");
    assert_non_null(file);
    fork_with(page_of(file), use_file);
    fclose(file);
}

static void child__has_files_where_the_signal_is_blocked(void **state)
{
    sigset_t all, before, now;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    child__has_files_on_adopted_pages(state);
    pthread_sigmask(SIG_SETMASK, &before, &now);
    assert_int_equal(sigismember(&now, SIGSEGV), 1);
}

static void use_malloc(void)
{
    free(malloc(100));
}

#ifdef __SANITIZE_ADDRESS__
static const bool has_arenas = false; /* the allocator is another one */
#else
static const bool has_arenas = true;
#endif

static void *allocate_own(void *in_arena)
{
    *(void **)in_arena = malloc(100);
    return NULL;
}

static void child__has_arenas_of_threads(void **state)
{
    (void)state;
    pthread_t thread;
    void *own = NULL;
    if (!has_arenas)
        skip();
    assert_int_equal(pthread_create(&thread, NULL, allocate_own, &own), 0);
    pthread_join(thread, NULL);
    fork_with((void *)((uintptr_t)own / ARENA_BYTES * ARENA_BYTES), use_malloc);
    free(own);
}

static sigjmp_buf fault_return;
static volatile sig_atomic_t seen;

static void on_own_fault(int number)
{
    (void)number;
    seen = FOUND;
    siglongjmp(fault_return, 1);
}

static void fault_now(void)
{
    volatile int *nowhere = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    seen = 0;
    if (!sigsetjmp(fault_return, 1))
        *nowhere = 1;
    munmap((void *)(uintptr_t)nowhere, PAGE);
}

static void program__has_its_own_handler_after_a_fork(void **state)
{
    (void)state;
    const struct sigaction own = {.sa_handler = on_own_fault};
    struct sigaction before, now;
    sigaction(SIGSEGV, &own, &before);
    file = fopen("/dev/zero", "r");
    struct sw_segment *segment = adopt_whole(page_of(file), PAGE);
    pid_t child = fork();
    if (!child) {
        sigaction(SIGSEGV, NULL, &now);
        fault_now();
        _exit(seen == FOUND && now.sa_handler == on_own_fault ? 0 : 1);
    }
    assert_int_equal(end_of(child), 0);
    sigaction(SIGSEGV, NULL, &now);
    assert_true(now.sa_handler == on_own_fault);
    fault_now();
    assert_int_equal(seen, FOUND);
    sw_adopt_put(segment);
    fclose(file);
    sigaction(SIGSEGV, &before, NULL);
}

static volatile bool ends;

static void *wait_on(void *unused)
{
    while (!ends)
        usleep(1000);
    return unused;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(child__has_files_on_adopted_pages),
        cmocka_unit_test(child__has_files_where_the_signal_is_blocked),
        cmocka_unit_test(child__has_arenas_of_threads),
        cmocka_unit_test(program__has_its_own_handler_after_a_fork),
    };
    pthread_t thread; /* with one thread alone glibc unlocks nothing */
    if (adopt_is_refused())
        return 77;
    if (pthread_create(&thread, NULL, wait_on, NULL))
        return 1;
    int failed = cmocka_run_group_tests_name("fork_fault", tests, NULL, NULL);
    ends = true;
    pthread_join(thread, NULL);
    return failed;
}
