/* SPDX-License-Identifier: BSD-2-Clause */
/* Sizes as the commands of all movers read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/text/size.h"

static void parse_size__takes_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {
        {"0", 0},
        {"4096", 4096},
        {"0x1000", 4096},
        {"0X10K", 16 << 10},
        {"010", 10},
        {"08", 8},
        {"007k", 7 << 10},
        {"64K", 64 << 10},
        {"64k", 64 << 10},
        {"64KB", 64 << 10},
        {"64KiB", 64 << 10},
        {"3M", 3 << 20},
        {"2g", 2ull << 30},
        {"1T", 1ull << 40},
        {"18446744073709551615", UINT64_MAX},
    };
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        uint64_t bytes;
        assert_true(mover_parse_size(sizes[i].text, &bytes));
        assert_int_equal(bytes, sizes[i].bytes);
    }
}

static void parse_size__refuses(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "K",
        "-1",
        "+1",
        " 1",
        "1 K",
        "64Kx",
        "64i",
        "64KB1",
        "64KiBB",
        "1.5G",
        "12x",
        "0x",
        "0xK",
        "0x10000000000000000",
        "18446744073709551616",
        "16777216T",
        "99999999999999999999K",
    };
    for (unsigned i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        uint64_t bytes = 7;
        assert_false(mover_parse_size(texts[i], &bytes));
        assert_int_equal(bytes, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_size__takes_units),
        cmocka_unit_test(parse_size__refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
