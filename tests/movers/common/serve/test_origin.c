/* SPDX-License-Identifier: BSD-2-Clause */
/* Which addresses are of one host, whose shares of a server are counted together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "common/serve/origin.h"

static struct in6_addr origin(const char *text)
{
    struct sockaddr_storage peer = {.ss_family = AF_INET6};
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&peer;
    if (inet_pton(AF_INET6, text, &in6->sin6_addr) != 1) {
        peer.ss_family = AF_INET;
        assert_int_equal(inet_pton(AF_INET, text, &((struct sockaddr_in *)&peer)->sin_addr), 1);
    }
    return mover_origin_of_peer((const struct sockaddr *)&peer);
}

static bool are_one(const char *a, const char *b)
{
    const struct in6_addr of_a = origin(a), of_b = origin(b);
    return IN6_ARE_ADDR_EQUAL(&of_a, &of_b);
}

static void origin__of_ipv6_is_the_network(void **state)
{
    (void)state;
    assert_true(are_one("2001:db8::1", "2001:db8::ffff:1"));
    assert_false(are_one("2001:db8::1", "2001:db8:0:1::1"));
}

static void origin__networks_that_many_hosts_share_are_none(void **state)
{
    (void)state;
    assert_false(are_one("fe80::1", "fe80::2"));
    assert_false(are_one("::ffff:10.0.0.1", "::ffff:10.0.0.2"));
    assert_false(are_one("::1", "::2"));
}

static void origin__of_ipv4_is_the_address(void **state)
{
    (void)state;
    assert_true(are_one("10.0.0.1", "10.0.0.1"));
    assert_false(are_one("10.0.0.1", "10.0.0.2"));
    assert_true(are_one("10.0.0.1", "::ffff:10.0.0.1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(origin__of_ipv6_is_the_network),
        cmocka_unit_test(origin__networks_that_many_hosts_share_are_none),
        cmocka_unit_test(origin__of_ipv4_is_the_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
