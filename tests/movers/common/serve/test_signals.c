/* SPDX-License-Identifier: BSD-2-Clause */
/* Signals that servers hear by a descriptor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/serve/signals.h"

static bool is_blocked(int number)
{
    sigset_t blocked;
    assert_int_equal(sigprocmask(SIG_BLOCK, NULL, &blocked), 0);
    return sigismember(&blocked, number);
}

static int forget_signals(void **state)
{
    sigset_t none;
    (void)state;
    sigemptyset(&none);
    return sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Where no descriptor can be had, Ctrl-C has to end the process all the same. */
static void signals__without_a_descriptor_do_what_they_did(void **state)
{
    struct rlimit limit, none;
    char error[128] = "";
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){0, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const int fd = mover_signals_open(false, error, sizeof(error));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(fd, -EMFILE);
    assert_non_null(strstr(error, "signalfd: Too many open files"));
    assert_false(is_blocked(SIGINT) || is_blocked(SIGTERM));
}

static void signals__come_by_the_descriptor(void **state)
{
    char error[128];
    (void)state;
    const int fd = mover_signals_open(false, error, sizeof(error));
    assert_true(fd >= 0);
    assert_int_equal(mover_signals_take(fd), 0);
    raise(SIGTERM);
    assert_int_equal(mover_signals_take(fd), SIGTERM);
    raise(SIGINT);
    assert_int_equal(mover_signals_take(fd), SIGINT);
    assert_int_equal(mover_signals_take(fd), 0);
    assert_false(is_blocked(SIGHUP));
    close(fd);
}

static void signals__have_a_configuration_read_again(void **state)
{
    char error[128];
    (void)state;
    const int fd = mover_signals_open(true, error, sizeof(error));
    assert_true(fd >= 0);
    raise(SIGHUP);
    assert_int_equal(mover_signals_take(fd), SIGHUP);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(signals__without_a_descriptor_do_what_they_did, forget_signals),
        cmocka_unit_test_teardown(signals__come_by_the_descriptor, forget_signals),
        cmocka_unit_test_teardown(signals__have_a_configuration_read_again, forget_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
