/* SPDX-License-Identifier: BSD-2-Clause */
/* Signals that servers hear by their loop. */
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

static struct mover_loop loop;
static int stops, reloads;

static bool is_blocked(int number)
{
    sigset_t blocked;
    assert_int_equal(sigprocmask(SIG_BLOCK, NULL, &blocked), 0);
    return sigismember(&blocked, number);
}

static int open_loop(void **state)
{
    (void)state;
    stops = reloads = 0;
    return mover_loop_open(&loop);
}

static int forget_signals(void **state)
{
    sigset_t none;
    (void)state;
    mover_loop_close(&loop);
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    return sigprocmask(SIG_SETMASK, &none, NULL);
}

static void note_stop(void *context)
{
    assert_ptr_equal(context, &stops);
    stops++;
}

static void note_reload(void *context)
{
    (void)context;
    reloads++;
}

/* Where no descriptor can be had, Ctrl-C has to end the process all the same. */
static void signals__without_a_descriptor_do_what_they_did(void **state)
{
    struct rlimit limit, none;
    struct mover_signals signals = {0};
    char error[128] = "";
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){0, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const int rc = mover_signals_open(&signals, &loop, error, sizeof(error));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(rc, -EMFILE);
    assert_non_null(strstr(error, "signalfd: Too many open files"));
    assert_false(is_blocked(SIGINT) || is_blocked(SIGTERM));
}

static void signals__stop_the_loop(void **state)
{
    const int numbers[] = {SIGINT, SIGTERM};
    char error[128];
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct mover_signals signals = {0};
        loop.is_over = false;
        assert_int_equal(mover_signals_open(&signals, &loop, error, sizeof(error)), 0);
        assert_false(is_blocked(SIGHUP));
        mover_loop_turn(&loop, 0);
        assert_false(loop.is_over);
        raise(numbers[i]);
        mover_loop_run(&loop);
        mover_signals_close(&signals);
        mover_signals_close(&signals); /* does nothing */
    }
}

static void signals__are_the_owners_where_it_takes_them(void **state)
{
    struct mover_signals signals = {.stop = note_stop, .reload = note_reload, .context = &stops};
    char error[128];
    (void)state;
    assert_int_equal(mover_signals_open(&signals, &loop, error, sizeof(error)), 0);
    raise(SIGHUP);
    mover_loop_turn(&loop, -1);
    assert_int_equal(reloads, 1);
    assert_int_equal(stops, 0);
    raise(SIGTERM);
    mover_loop_turn(&loop, -1);
    assert_int_equal(stops, 1);
    assert_false(loop.is_over);
    mover_signals_close(&signals);
}

static void signals__a_log_that_nobody_reads_ends_nothing(void **state)
{
    struct mover_signals signals = {.loop = NULL};
    char error[128];
    int ends[2];
    (void)state;
    assert_int_equal(mover_signals_open(&signals, &loop, error, sizeof(error)), 0);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(write(ends[1], "a line", 6), -1);
    assert_int_equal(errno, EPIPE);
    close(ends[1]);
    mover_signals_close(&signals);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_loop, forget_signals)
    const struct CMUnitTest tests[] = {
        TEST(signals__without_a_descriptor_do_what_they_did),
        TEST(signals__stop_the_loop),
        TEST(signals__are_the_owners_where_it_takes_them),
        TEST(signals__a_log_that_nobody_reads_ends_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
