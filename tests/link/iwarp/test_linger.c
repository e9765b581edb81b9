/* SPDX-License-Identifier: BSD-2-Clause */
/* Sockets whose peers do not end are bounded in number. */
#include "link/iwarp/linger.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    DESCRIPTORS = 160,
    KEPT = DESCRIPTORS / 16,
    MORE = 5,
    UNSENT = 3,
    UNSENT_MAX = DESCRIPTORS / 4, /* all of them */
    LONG_BYTES = 4 << 20,         /* more than a socket takes */
    BRIEF_BYTES = 100
};

static bool has_ended(int peer)
{
    struct pollfd end = {.fd = peer, .events = POLLIN};
    return poll(&end, 1, 0) == 1 && end.revents & POLLHUP;
}

static struct rlimit before;

static int bound_descriptors(void **state)
{
    (void)state;
    if (getrlimit(RLIMIT_NOFILE, &before))
        return -1;
    struct rlimit limit = before;
    limit.rlim_cur = DESCRIPTORS;
    return setrlimit(RLIMIT_NOFILE, &limit);
}

static int restore_descriptors(void **state)
{
    (void)state;
    return setrlimit(RLIMIT_NOFILE, &before);
}

/* Our peer, whose end has bytes left for it. */
static int peer_of_end(size_t len_bytes)
{
    int socks[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, socks), 0);
    sw_iwarp_linger(socks[1], len_bytes ? calloc(1, len_bytes) : NULL, len_bytes, true);
    return socks[0];
}

static void close_peers(const int *peers, int count)
{
    while (count-- > 0)
        close(peers[count]);
    assert_int_equal(sw_iwarp_linger_step(0), UINT64_MAX);
    assert_false(sw_iwarp_lingers());
}

static void linger__the_oldest_of_too_many_goes(void **state)
{
    (void)state;
    int peers[KEPT + MORE];
    for (int i = 0; i < KEPT + MORE; i++)
        peers[i] = peer_of_end(0);
    for (int i = 0; i < KEPT + MORE; i++)
        assert_int_equal(has_ended(peers[i]), i < MORE);
    close_peers(peers, KEPT + MORE);
}

/* A connection that has bytes left, in this process or in the kernel, stays. */
static void linger__whoever_has_nothing_to_lose_goes_first(void **state)
{
    (void)state;
    int peers[KEPT + MORE];
    for (int i = 0; i < KEPT + MORE; i++)
        peers[i] = peer_of_end(i >= UNSENT ? 0 : i ? LONG_BYTES : BRIEF_BYTES);
    for (int i = 0; i < KEPT + MORE; i++)
        assert_int_equal(has_ended(peers[i]), i >= UNSENT && i < UNSENT + MORE);
    close_peers(peers, KEPT + MORE);
}

static void linger__there_is_a_bound_for_all(void **state)
{
    (void)state;
    int peers[UNSENT_MAX + MORE];
    for (int i = 0; i < UNSENT_MAX + MORE; i++)
        peers[i] = peer_of_end(BRIEF_BYTES);
    for (int i = 0; i < UNSENT_MAX + MORE; i++)
        assert_int_equal(has_ended(peers[i]), i < MORE);
    close_peers(peers, UNSENT_MAX + MORE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linger__the_oldest_of_too_many_goes),
        cmocka_unit_test(linger__whoever_has_nothing_to_lose_goes_first),
        cmocka_unit_test(linger__there_is_a_bound_for_all),
    };
    return cmocka_run_group_tests(tests, bound_descriptors, restore_descriptors);
}
