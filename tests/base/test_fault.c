/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that lose pages under a mapping: each case is a child, as it may well die. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/guarded_copy.h"
#include "base/sigbus.h"

enum { BYTES = 65536, PAGE = 4096 };

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
        cmocka_unit_test(sw_fault_judge__threads_that_fault_at_once),
        cmocka_unit_test(sw_fault_guard__others_die_as_before),
        cmocka_unit_test(sw_fault_guard__a_handler_that_was_there_before),
        cmocka_unit_test(sw_fault_guard__a_signal_that_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
