/* SPDX-License-Identifier: BSD-2-Clause */
/* Sockets whose peers do not end are bounded in number. */
#include "link/iwarp/linger.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { DESCRIPTORS = 160, KEPT = DESCRIPTORS / 16, MORE = 5 };

static bool has_ended(int peer)
{
    struct pollfd end = {.fd = peer, .events = POLLIN};
    return poll(&end, 1, 0) == 1 && end.revents & POLLHUP;
}

static void linger__the_oldest_of_too_many_goes(void **state)
{
    (void)state;
    int peers[KEPT + MORE];
    struct rlimit limit, before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = DESCRIPTORS;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < KEPT + MORE; i++) {
        int socks[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks), 0);
        peers[i] = socks[0];
        sw_iwarp_linger(socks[1], NULL, 0, true);
    }
    for (int i = 0; i < KEPT + MORE; i++) {
        assert_int_equal(has_ended(peers[i]), i < MORE);
        close(peers[i]);
    }
    assert_int_equal(sw_iwarp_linger_step(0), UINT64_MAX); /* all peers have ended */
    assert_false(sw_iwarp_lingers());
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(linger__the_oldest_of_too_many_goes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
