/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that are deaf to the program's signals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "base/thread.h"

struct seen {
    sigset_t mask;
    int is_detached;
};

static void *look_around(void *arg)
{
    struct seen *seen = arg;
    pthread_attr_t attr;
    pthread_sigmask(SIG_SETMASK, NULL, &seen->mask);
    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getdetachstate(&attr, &seen->is_detached);
    pthread_attr_destroy(&attr);
    return NULL;
}

/* The caller has USR1 blocked, and nothing else that it had not blocked before. */
static void expect_own_mask(const sigset_t *own)
{
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int number = 1; number < NSIG; number++)
        assert_int_equal(sigismember(&now, number), sigismember(own, number));
    assert_int_equal(sigismember(&now, SIGUSR1), 1);
    assert_int_equal(sigismember(&now, SIGTERM), 0);
}

static sigset_t block_usr1(void)
{
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &own, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &own);
    return own;
}

static void start__is_deaf_but_to_faults(void **state)
{
    (void)state;
    static const int deaf_to[] = {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD, SIGPROF};
    const sigset_t own = block_usr1();
    struct seen seen;
    pthread_t thread;
    assert_int_equal(sw_thread_start(&thread, NULL, look_around, &seen), 0);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < sizeof(deaf_to) / sizeof(*deaf_to); i++)
        assert_int_equal(sigismember(&seen.mask, deaf_to[i]), 1);
    assert_int_equal(sigismember(&seen.mask, SIGBUS), 0);
    assert_int_equal(seen.is_detached, PTHREAD_CREATE_JOINABLE);
    expect_own_mask(&own);
}

static void start__says_why_not(void **state)
{
    (void)state;
    const sigset_t own = block_usr1();
    struct seen seen;
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, (size_t)1 << 50), 0); /* no room for it */
    assert_int_equal(sw_thread_start(&thread, &attr, look_around, &seen), EAGAIN);
    pthread_attr_destroy(&attr);
    expect_own_mask(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(start__is_deaf_but_to_faults),
        cmocka_unit_test(start__says_why_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
