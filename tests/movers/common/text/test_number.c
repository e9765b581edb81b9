/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers as the commands of all movers read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/text/number.h"

static void parse_number__leaves_the_rest(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
        const char *rest;
    } numbers[] = {
        {"0", 0, ""},        {"7", 7, ""},
        {"010", 10, ""},     {"0x10", 16, ""},
        {"0Xff", 255, ""},   {"12 apples", 12, " apples"},
        {"08:09", 8, ":09"}, {"18446744073709551615", UINT64_MAX, ""},
        {"0x", 0, "x"},      {"0x-1", 0, "x-1"},
        {"1e3", 1, "e3"},    {"0xffffffffffffffff", UINT64_MAX, ""},
    };
    for (unsigned i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        const char *rest;
        uint64_t value;
        assert_true(mover_parse_number(numbers[i].text, &value, &rest));
        assert_int_equal(value, numbers[i].value);
        assert_string_equal(rest, numbers[i].rest);
    }
}

static void parse_number__refuses(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "", "x10", "-1", "+1", " 1", "18446744073709551616", "0x10000000000000000",
    };
    for (unsigned i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        const char *rest = "rest";
        uint64_t value = 7;
        assert_false(mover_parse_number(texts[i], &value, &rest));
        assert_int_equal(value, 7);
        assert_string_equal(rest, "rest");
    }
}

static void parse_port__knows_no_remainders(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "", "65536", "69966", "4294971726", "99999999999999999999", "0x50", "-1", "80 ", "http"};
    uint16_t port = 7;
    for (unsigned i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        assert_false(mover_parse_port(texts[i], &port));
        assert_int_equal(port, 7);
    }
    assert_true(mover_parse_port("0", &port) && port == 0);
    assert_true(mover_parse_port("65535", &port) && port == 65535);
    assert_true(mover_parse_port("04430", &port) && port == 4430);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_number__leaves_the_rest),
        cmocka_unit_test(parse_number__refuses),
        cmocka_unit_test(parse_port__knows_no_remainders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
