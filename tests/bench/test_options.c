/* SPDX-License-Identifier: BSD-2-Clause */
#include "options.h"

#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

struct values {
    const char *device;
    uint16_t port;
    int list;
    uint64_t ops;
    bool sleeps;
};

static bool parse(struct values *values, const char *first, const char *second)
{
    char *argv[] = {"program", (char *)(uintptr_t)first, (char *)(uintptr_t)second, "rest", NULL};
    const struct bench_option table[] = {
        BENCH_TEXT_OPTION("device", 'd', values->device),
        BENCH_NUMBER_OPTION("port", 'p', values->port),
        BENCH_NUMBER_OPTION("list", 'l', values->list),
        BENCH_NUMBER_OPTION("ops", 'n', values->ops),
        BENCH_FLAG_OPTION("sleep", 'e', values->sleeps),
    };
    optind = 0; /* getopt(3): begin anew */
    opterr = 0;
    return bench_parse_options(4, argv, table, sizeof(table) / sizeof(table[0]));
}

static void bench_parse_options__stores_each_kind(void **state)
{
    (void)state;
    struct values values = {.list = 7};
    assert_true(parse(&values, "--device=sw_lo", "-p65535"));
    assert_string_equal(values.device, "sw_lo");
    assert_int_equal(values.port, 65535);
    assert_int_equal(values.list, 7);
    assert_int_equal(optind, 3);
    assert_true(parse(&values, "--list=32", "--ops=18446744073709551615"));
    assert_int_equal(values.list, 32);
    assert_true(values.ops == UINT64_MAX);
    assert_false(values.sleeps);
    assert_true(parse(&values, "-e", "-n9"));
    assert_true(values.sleeps && values.ops == 9);
}

static void bench_parse_options__refuses_what_is_no_number(void **state)
{
    (void)state;
    struct values values = {0};
    assert_false(parse(&values, "--port=many", "-e"));
    assert_false(parse(&values, "--port=80x", "-e"));
    assert_false(parse(&values, "--port=", "-e"));
    assert_false(parse(&values, "--port=-1", "-e"));
    assert_false(parse(&values, "--port=65536", "-e"));
    assert_false(parse(&values, "--ops=18446744073709551616", "-e"));
    assert_false(parse(&values, "--unknown", "-e"));
    assert_int_equal(values.port, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bench_parse_options__stores_each_kind),
        cmocka_unit_test(bench_parse_options__refuses_what_is_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
