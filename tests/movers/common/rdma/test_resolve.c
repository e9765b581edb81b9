/* SPDX-License-Identifier: BSD-2-Clause */
#include <netdb.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/rdma/resolve.h"

static uint16_t port_of(const char *text)
{
    struct sockaddr_storage at = {0};
    assert_null(mover_resolve("127.0.0.1", text, 0, &at));
    assert_int_equal(at.ss_family, AF_INET);
    return ntohs(((const struct sockaddr_in *)&at)->sin_port);
}

static void resolve__ports(void **state)
{
    (void)state;
    assert_int_equal(port_of("4430"), 4430);
    assert_int_equal(port_of("0"), 0);
    assert_int_equal(port_of("65535"), 65535);
    assert_int_equal(port_of(NULL), 0);
}

static void resolve__what_is_no_port(void **state)
{
    struct sockaddr_storage at;
    (void)state;
    assert_non_null(mover_resolve("127.0.0.1", "65536", 0, &at));
    assert_non_null(mover_resolve("127.0.0.1", "69966", 0, &at)); /* 4430 in 16 bits */
    assert_non_null(mover_resolve("127.0.0.1", "99999999999999999999999", 0, &at));
    for (int i = 0; i < 3; i++) { /* and libc's words for that name no port */
        static const char *const words[] = {"-1", "no-such-service", "1 2"};
        const char *wrong = mover_resolve("127.0.0.1", words[i], 0, &at);
        assert_string_equal(wrong ? wrong : "taken", "a port is a number up to 65535");
    }
}

static void resolve__a_peer_has_a_port(void **state)
{
    struct sockaddr_storage at;
    (void)state;
    assert_null(mover_resolve_peer("127.0.0.1", "4430", &at));
    assert_null(mover_resolve_peer("127.0.0.1", NULL, &at));
    assert_non_null(mover_resolve_peer("127.0.0.1", "0", &at));
    assert_non_null(mover_resolve_peer("127.0.0.1", "00", &at));
    assert_non_null(mover_resolve_peer("127.0.0.1", "65536", &at));
}

static void resolve__addresses(void **state)
{
    struct sockaddr_storage at;
    (void)state;
    assert_null(mover_resolve("::1", "1", 0, &at));
    assert_int_equal(at.ss_family, AF_INET6);
    assert_null(mover_resolve(NULL, "1", AI_PASSIVE, &at));
    assert_non_null(mover_resolve("no address", "1", AI_NUMERICHOST, &at));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resolve__ports),
        cmocka_unit_test(resolve__what_is_no_port),
        cmocka_unit_test(resolve__a_peer_has_a_port),
        cmocka_unit_test(resolve__addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
