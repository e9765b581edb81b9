/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that are made shorter under a mapping: each case is a child, as it may well die. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"

enum { BYTES = 65536 };

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

static void lose_guarded(void)
{
    int fd;
    uint8_t *base = map_file(&fd);
    if (!sw_fault_guard(base, BYTES) || sw_fault_hit(base))
        _exit(1);
    base[1] = 1;
    if (ftruncate(fd, 0))
        _exit(2);
    memset(base + 4096, 7, 8192);
    __atomic_fetch_add((uint64_t *)(void *)(base + 128), 1, __ATOMIC_SEQ_CST);
    if (!sw_fault_hit(base) || !sw_fault_hit(base + BYTES - 1) || sw_fault_hit(base + BYTES))
        _exit(3);
    sw_fault_unguard(base);
    if (sw_fault_hit(base))
        _exit(4);
}

static void sw_fault_hit__a_guarded_range_that_is_lost(void **state)
{
    (void)state;
    assert_int_equal(run_child(lose_guarded), 0);
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
        cmocka_unit_test(sw_fault_hit__a_guarded_range_that_is_lost),
        cmocka_unit_test(sw_fault_guard__others_die_as_before),
        cmocka_unit_test(sw_fault_guard__a_handler_that_was_there_before),
        cmocka_unit_test(sw_fault_guard__a_signal_that_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
