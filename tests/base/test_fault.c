/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that lose pages under a mapping: each case is a child, as it may well die. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/guarded_copy.h"
#include "base/sigbus.h"

enum { BYTES = 65536, PAGE = 4096 };

static int kernel_page = PAGE;

/* Instead of libc's: that of another kernel. */
int getpagesize(void)
{
    return kernel_page;
}

static uint8_t *map_file(int *fd)
{
    *fd = memfd_create("shorter", MFD_CLOEXEC);
    if (*fd < 0 || ftruncate(*fd, BYTES))
        _exit(90);
    uint8_t *base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (base == MAP_FAILED)
        _exit(91);
    return base;
}

static int run_child(void (*body)(void))
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGBUS, SIG_DFL); /* not a sanitizer's */
        body();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static enum sw_fault store(uint8_t *at, uint8_t value, size_t len_bytes)
{
    const uint64_t mark = sw_fault_mark();
    memset(at, value, len_bytes);
    return sw_fault_judge(mark, at, len_bytes);
}

static bool file_has(int fd, size_t at, uint8_t value)
{
    uint8_t is;
    return pread(fd, &is, 1, (off_t)at) == 1 && is == value;
}

static void lose_guarded(void)
{
    int fd;
    uint8_t *base = map_file(&fd);
    if (!sw_fault_guard(base, BYTES) || store(base, 1, 1) != SW_FAULT_NONE)
        _exit(1);
    if (ftruncate(fd, PAGE))
        _exit(2);
    const uint64_t mark = sw_fault_mark();
    memset(base + PAGE, 7, 2 * PAGE);
    __atomic_fetch_add((uint64_t *)(void *)(base + 4 * PAGE), 1, __ATOMIC_SEQ_CST);
    if (sw_fault_judge(mark, base + PAGE, 2 * PAGE) != SW_FAULT_LOST ||
        sw_fault_judge(mark, base + 4 * PAGE, 8) != SW_FAULT_LOST ||
        sw_fault_judge(mark, base, PAGE) != SW_FAULT_NONE ||
        sw_fault_judge(mark, base + 3 * PAGE, PAGE) != SW_FAULT_NONE)
        _exit(3);
    if (store(base, 2, PAGE) != SW_FAULT_NONE || !file_has(fd, 0, 2))
        _exit(4);
    if (store(base + PAGE, 3, PAGE) != SW_FAULT_LOST) /* still missing */
        _exit(5);
    if (ftruncate(fd, BYTES))
        _exit(6);
    if (store(base + PAGE, 4, 4 * PAGE) != SW_FAULT_NONE || !file_has(fd, 4 * PAGE, 4))
        _exit(7);
    sw_fault_unguard(base);
}

static void sw_fault_judge__pages_that_are_missing_for_a_while(void **state)
{
    (void)state;
    assert_int_equal(run_child(lose_guarded), 0);
}

/* Which leaves private memory in the place of a page. */
static void *fault_and_do_not_judge(void *at)
{
    *(volatile uint8_t *)at = 9;
    return NULL;
}

static void in_thread(void *(*body)(void *), void *at)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, at) || pthread_join(thread, NULL))
        _exit(90);
}

static void meet_anothers_fault(void)
{
    int fd;
    uint8_t *base = map_file(&fd);
    if (!sw_fault_guard(base, BYTES) || ftruncate(fd, 0))
        _exit(1);
    in_thread(fault_and_do_not_judge, base + PAGE);
    if (ftruncate(fd, BYTES))
        _exit(2);
    const uint64_t mark = sw_fault_mark();
    base[PAGE + 1] = 5; /* to nowhere */
    if (file_has(fd, PAGE + 1, 5) || sw_fault_judge(mark, base + PAGE, 8) != SW_FAULT_AGAIN)
        _exit(3);
    if (store(base + PAGE + 1, 6, 1) != SW_FAULT_NONE || !file_has(fd, PAGE + 1, 6))
        _exit(4);
    if (sw_fault_judge(mark, base + PAGE, 8) != SW_FAULT_AGAIN) /* put back since then */
        _exit(5);
}

static void sw_fault_judge__who_meets_anothers_fault_goes_again(void **state)
{
    (void)state;
    assert_int_equal(run_child(meet_anothers_fault), 0);
}

static void lose_more_than_is_kept(void)
{
    int fd;
    map_file(&fd);
    const size_t bytes = 2000 * PAGE;
    if (ftruncate(fd, (off_t)bytes))
        _exit(1);
    uint8_t *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED || !sw_fault_guard(base, bytes) || ftruncate(fd, 0))
        _exit(2);
    const uint64_t mark = sw_fault_mark();
    memset(base, 1, bytes);
    if (sw_fault_judge(mark, base, PAGE) != SW_FAULT_LOST ||
        sw_fault_judge(mark, base + bytes - 1, 1) != SW_FAULT_LOST)
        _exit(3);
    if (ftruncate(fd, (off_t)bytes))
        _exit(4);
    if (store(base, 2, bytes) != SW_FAULT_NONE || !file_has(fd, 0, 2) ||
        !file_has(fd, bytes - 1, 2))
        _exit(5);
    sw_fault_unguard(base);
}

static void sw_fault_judge__more_pages_than_are_kept(void **state)
{
    (void)state;
    assert_int_equal(run_child(lose_more_than_is_kept), 0);
}

static void unguard_while_replaced(void)
{
    int fd;
    uint8_t *base = map_file(&fd);
    if (!sw_fault_guard(base, BYTES) || ftruncate(fd, 0))
        _exit(1);
    in_thread(fault_and_do_not_judge, base);
    sw_fault_unguard(base);
    if (sw_fault_mark() & 1 || base[0] != 9)
        _exit(2);
}

static void sw_fault_unguard__while_a_page_is_replaced(void **state)
{
    (void)state;
    assert_int_equal(run_child(unguard_while_replaced), 0);
}

/* As on a kernel of larger pages, of which mremap() moves whole ones only. */
static void lose_large_page(void)
{
    enum { LARGE = 4 * PAGE };
    int fd;
    uint8_t *file = map_file(&fd),
            *room = mmap(NULL, 2 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *base = room + LARGE - (uintptr_t)room % LARGE;
    kernel_page = LARGE;
    if (room == MAP_FAILED ||
        mremap(file, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, base) != base ||
        !sw_fault_guard(base, BYTES) || ftruncate(fd, 0))
        _exit(1);
    const uint64_t before = sw_fault_mark();
    base[PAGE] = 1;
    const uint64_t mark = sw_fault_mark();
    base[0] = base[LARGE - 1] = 2; /* in the same page */
    if (mark == before || sw_fault_mark() != mark)
        _exit(2);
    if (sw_fault_judge(before, base + LARGE - 1, 1) != SW_FAULT_LOST || ftruncate(fd, BYTES) ||
        store(base, 3, LARGE) != SW_FAULT_NONE || !file_has(fd, LARGE - 1, 3))
        _exit(3);
}

static void sw_fault_guard__a_kernel_of_larger_pages(void **state)
{
    (void)state;
    assert_int_equal(run_child(lose_large_page), 0);
}

/* The kernel copies from the page at `at`: -1 is EFAULT. */
static ssize_t let_kernel_copy(const uint8_t *at)
{
    int ends[2];
    if (pipe(ends))
        _exit(90);
    const ssize_t done = write(ends[1], at, 1);
    close(ends[0]);
    close(ends[1]);
    return done;
}

static void hold_while_another_faults(void)
{
    int fd;
    pthread_t thread;
    uint8_t *base = map_file(&fd);
    if (!sw_fault_guard(base, BYTES) || !sw_fault_probe(base, BYTES))
        _exit(1);
    const uint64_t mark = sw_fault_mark();
    if (!sw_fault_hold(mark) || ftruncate(fd, 0) ||
        pthread_create(&thread, NULL, fault_and_do_not_judge, base + PAGE))
        _exit(2);
    while (sw_fault_mark() == mark)
        sched_yield();
    usleep(20000); /* which it takes to replace the page, if it does */
    if (let_kernel_copy(base + PAGE) != -1)
        _exit(3);
    sw_fault_let_go();
    pthread_join(thread, NULL);
    if (let_kernel_copy(base + PAGE) != 1 || sw_fault_hold(mark))
        _exit(4);
    if (sw_fault_probe(base + PAGE, 1) || !sw_fault_hold(sw_fault_mark()))
        _exit(5);
    sw_fault_let_go();
}

static void sw_fault_hold__another_thread_faults(void **state)
{
    (void)state;
    assert_int_equal(run_child(hold_while_another_faults), 0);
}

static void let_go_in_parent(void)
{
    int fd, status;
    uint8_t *base = map_file(&fd);
    if (!sw_fault_guard(base, BYTES) || !sw_fault_hold(sw_fault_mark()))
        _exit(1);
    const pid_t child = fork();
    if (child == 0) /* nobody lets go here */
        _exit(!sw_fault_guard(base, BYTES) || ftruncate(fd, 0) ||
              store(base, 1, 1) != SW_FAULT_LOST);
    if (waitpid(child, &status, 0) != child || status)
        _exit(2);
}

static void sw_fault_hold__a_forked_child_holds_nothing(void **state)
{
    (void)state;
    assert_int_equal(run_child(let_go_in_parent), 0);
}

/* Now not one more page can be mapped. */
static void have_no_room(void)
{
    unsigned long pages;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%lu", &pages) != 1)
        _exit(90);
    const struct rlimit limit = {pages * PAGE, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit))
        _exit(91);
}

static void lose_range_for_good(void)
{
    int fds[2];
    uint8_t *lost = map_file(&fds[0]), *other = map_file(&fds[1]);
    if (!sw_fault_guard(lost, BYTES) || !sw_fault_guard(other, BYTES) || ftruncate(fds[0], 0))
        _exit(1);
    have_no_room();
    if (store(lost + PAGE, 1, 1) != SW_FAULT_LOST || store(lost, 1, 1) != SW_FAULT_LOST)
        _exit(2);
    if (store(other, 2, BYTES) != SW_FAULT_NONE || !file_has(fds[1], PAGE, 2) ||
        !sw_fault_hold(sw_fault_mark()))
        _exit(3);
    sw_fault_let_go();
    sw_fault_unguard(lost);
    if (sw_fault_mark() & 1)
        _exit(4);
}

static void sw_fault_judge__a_range_that_is_lost_for_good(void **state)
{
    (void)state;
    assert_int_equal(run_child(lose_range_for_good), 0);
}

static uint8_t *shared_base;
static int shared_fd;
static atomic_bool is_over;

static void *fail_again_and_again(void *arg)
{
    sw_sigbus_enter();
    for (int i = 0; i < 3000; i++)
        if (sw_guarded_copy(shared_base + PAGE + 1, "lost", 4, shared_base + PAGE + 1))
            _exit(10);
    return arg;
}

/* Beside the page that is missing, and beyond it. */
static void *store_elsewhere(void *arg)
{
    sw_sigbus_enter();
    for (int i = 0; !atomic_load(&is_over); i++) {
        uint8_t *at = shared_base + (i & 1 ? 0 : PAGE / 2);
        const uint8_t value = (uint8_t)i;
        uint8_t back;
        if (!sw_guarded_copy(at, &value, 1, at) || !sw_guarded_copy(&back, at, 1, at) ||
            back != value || !file_has(shared_fd, (size_t)(at - shared_base), value))
            _exit(11);
    }
    return arg;
}

static void fault_beside_others(void)
{
    pthread_t failing[2], other;
    shared_base = map_file(&shared_fd);
    if (!sw_fault_guard(shared_base, BYTES) || ftruncate(shared_fd, PAGE))
        _exit(1);
    if (pthread_create(&other, NULL, store_elsewhere, NULL))
        _exit(2);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&failing[i], NULL, fail_again_and_again, NULL))
            _exit(3);
    for (int i = 0; i < 2; i++)
        pthread_join(failing[i], NULL);
    atomic_store(&is_over, true);
    pthread_join(other, NULL);
    if (sw_fault_mark() & 1)
        _exit(4);
}

static void sw_fault_judge__threads_that_fault_at_once(void **state)
{
    (void)state;
    assert_int_equal(run_child(fault_beside_others), 0);
}

static void lose_another(void)
{
    int fd, other;
    uint8_t *base = map_file(&fd), *unguarded = map_file(&other);
    sw_fault_guard(base, BYTES);
    if (ftruncate(other, 0))
        _exit(2);
    unguarded[0] = 1;
}

static void sw_fault_guard__others_die_as_before(void **state)
{
    (void)state;
    assert_int_equal(run_child(lose_another), -SIGBUS);
}

static void exit_55(int number)
{
    (void)number;
    _exit(55);
}

static void has_handler_before(void)
{
    signal(SIGBUS, exit_55);
    lose_guarded(); /* not told of that */
    lose_another();
}

static void sw_fault_guard__a_handler_that_was_there_before(void **state)
{
    (void)state;
    assert_int_equal(run_child(has_handler_before), 55);
}

static void is_sent_one(void)
{
    int fd;
    sw_fault_guard(map_file(&fd), BYTES);
    raise(SIGBUS);
}

static void sw_fault_guard__a_signal_that_is_sent(void **state)
{
    (void)state;
    assert_int_equal(run_child(is_sent_one), -SIGBUS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_fault_judge__pages_that_are_missing_for_a_while),
        cmocka_unit_test(sw_fault_judge__who_meets_anothers_fault_goes_again),
        cmocka_unit_test(sw_fault_judge__more_pages_than_are_kept),
        cmocka_unit_test(sw_fault_unguard__while_a_page_is_replaced),
        cmocka_unit_test(sw_fault_guard__a_kernel_of_larger_pages),
        cmocka_unit_test(sw_fault_hold__another_thread_faults),
        cmocka_unit_test(sw_fault_hold__a_forked_child_holds_nothing),
        cmocka_unit_test(sw_fault_judge__a_range_that_is_lost_for_good),
        cmocka_unit_test(sw_fault_judge__threads_that_fault_at_once),
        cmocka_unit_test(sw_fault_guard__others_die_as_before),
        cmocka_unit_test(sw_fault_guard__a_handler_that_was_there_before),
        cmocka_unit_test(sw_fault_guard__a_signal_that_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
