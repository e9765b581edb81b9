/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses with ports as the commands of all movers read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/text/endpoint.h"

static void split_endpoint__finds_both(void **state)
{
    (void)state;
    static const struct {
        const char *text, *address, *port;
    } endpoints[] = {
        {"192.0.2.1", "192.0.2.1", "4420"},        {"192.0.2.1:1", "192.0.2.1", "1"},
        {"localhost:http", "localhost", "http"},   {"192.0.2.1:", "192.0.2.1", ""},
        {"2001:db8::1", "2001:db8::1", "4420"},    {"::", "::", "4420"},
        {"[2001:db8::1]", "2001:db8::1", "4420"},  {"[2001:db8::1]:1", "2001:db8::1", "1"},
        {"[fe80::1%eth0]:1", "fe80::1%eth0", "1"}, {"[192.0.2.1]:1", "192.0.2.1", "1"},
    };
    for (unsigned i = 0; i < sizeof(endpoints) / sizeof(*endpoints); i++) {
        char text[64];
        const char *address, *port = "4420";
        snprintf(text, sizeof(text), "%s", endpoints[i].text);
        assert_true(mover_split_endpoint(text, &address, &port));
        assert_string_equal(address, endpoints[i].address);
        assert_string_equal(port, endpoints[i].port);
    }
}

static void split_endpoint__refuses(void **state)
{
    (void)state;
    static const char *const texts[] = {"", ":1", "[", "[]", "[]:1", "[::1", "[::1]1", "[::1]]:1"};
    for (unsigned i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        char text[64];
        const char *address, *port = NULL;
        snprintf(text, sizeof(text), "%s", texts[i]);
        assert_false(mover_split_endpoint(text, &address, &port));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_endpoint__finds_both),
        cmocka_unit_test(split_endpoint__refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
