/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables as columns and as JSON, and the rows of a bench. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/command/bench.h"
#include "common/command/table.h"
#include "common/time/clock.h"

enum { TEXT_MAX = 2048 };

static struct mover_bench bench;

static const struct mover_column columns[] = {{"KIND", NULL, .width = -6},
                                              {"BYTES", "bytes", .width = 7},
                                              {"NAME", "name", .width = -5, .gap = 1},
                                              {"US", "us", .width = 6, .digits = 2},
                                              {"OK", "ok", .width = 0},
                                              {0}};

static char text[TEXT_MAX];
static FILE *own;

static void begin_text(void)
{
    memset(text, 0, sizeof(text));
    own = stdout;
    stdout = fmemopen(text, sizeof(text) - 1, "w");
    assert_non_null(stdout);
}

static void end_text(void)
{
    fclose(stdout);
    stdout = own;
}

static json_t *make_row(int bytes, const char *name)
{
    return json_pack("{si ss? sf sb}", "bytes", bytes, "name", name, "us", 1.0 / 3, "ok",
                     bytes > 1);
}

static int show_rows(bool is_json)
{
    struct mover_table table;
    mover_table_open(&table, columns, is_json);
    mover_table_add(&table, "read", make_row(1, "a"));
    mover_table_add(&table, "write", make_row(1234567890, NULL));
    return mover_table_close(&table, json_pack("{so}", "rows", table.rows));
}

static void table__has_columns(void **state)
{
    (void)state;
    begin_text();
    assert_int_equal(show_rows(false), 0);
    end_text();
    assert_string_equal(text, "KIND     BYTES  NAME      US OK\n"
                              "read         1  a       0.33 no\n"
                              "write  1234567890  -       0.33 yes\n");
}

static void table__has_json_of_the_same_rows(void **state)
{
    (void)state;
    begin_text();
    assert_int_equal(show_rows(true), 0);
    end_text();
    json_t *all = json_loads(text, 0, NULL), *rows = json_object_get(all, "rows");
    assert_int_equal(json_array_size(rows), 2);
    json_t *row = json_array_get(rows, 1);
    assert_int_equal(json_integer_value(json_object_get(row, "bytes")), 1234567890);
    assert_true(json_is_null(json_object_get(row, "name")));
    assert_true(json_is_true(json_object_get(row, "ok")));
    assert_int_equal(json_object_size(row), 4); /* the label is of the text */
    json_decref(all);
}

static void table__text_may_have_another_unit(void **state)
{
    static const struct mover_column of_text[] = {
        {"MS", "us", .digits = 3, .divisor = 1e3}, {"US", "us", .digits = 1}, {0}};
    struct mover_table table;
    (void)state;
    begin_text();
    mover_table_open(&table, of_text, false);
    mover_table_add(&table, NULL, json_pack("{sf}", "us", 1234.5));
    assert_int_equal(mover_table_close(&table, table.rows), 0);
    end_text();
    assert_string_equal(text, "MS US\n1.234 1234.5\n");
}

static void table__a_full_disk_fails(void **state)
{
    char *said = NULL;
    size_t bytes;
    (void)state;
    for (int is_json = 0; is_json < 2; is_json++) {
        FILE *own_errors = stderr;
        own = stdout;
        stdout = fopen("/dev/full", "w");
        assert_non_null(stdout);
        stderr = open_memstream(&said, &bytes);
        const int code = show_rows(is_json);
        fclose(stderr);
        stderr = own_errors;
        fclose(stdout);
        stdout = own;
        assert_int_equal(code, 1);
        assert_non_null(strstr(said, "standard output cannot be written"));
        free(said);
    }
}

/* The rows of a command's table, as its arguments come. */
static const struct mover_option rows[] = {
    {"count", 0, "N", 0, "How many", 1, mover_take_bench_count, 0},
    {"runtime", 0, "S", 0, "How long", 1, mover_take_bench_runtime, 0},
    {0},
};

static void begin_bench(char *one, char *two)
{
    static const struct mover_usage usage = {.own = {.rows = rows}};
    char *argv[] = {(char *)"try", one, two, NULL};
    bench = (struct mover_bench){.request_bytes = 64};
    mover_parse(&usage, !one ? 1 : !two ? 2 : 3, argv, &bench);
    mover_bench_begin(&bench);
}

/* How many it makes, each at once. */
static uint64_t count_rounds(void)
{
    uint64_t rounds = 0;
    for (; mover_bench_goes_on(&bench); rounds++)
        mover_bench_add(&bench, mover_now_ns());
    mover_bench_end(&bench);
    return rounds;
}

static void bench__ends_by_number(void **state)
{
    (void)state;
    begin_bench((char *)"--count=5", NULL);
    assert_true(bench.until_ns == UINT64_MAX); /* a count is kept to, however long it takes */
    assert_int_equal(count_rounds(), 5);
    assert_int_equal(bench.latency.count, 5);
    assert_true(bench.took_ns > 0);
    begin_bench((char *)"--count=5", (char *)"--runtime=60");
    assert_int_equal(count_rounds(), 5);
    begin_bench(NULL, NULL);
    assert_int_equal(bench.count_max, 10000);
    assert_int_equal(bench.until_ns - bench.begun_ns, 10000000000);
}

static void bench__ends_by_time(void **state)
{
    (void)state;
    begin_bench((char *)"--runtime=0", NULL);
    assert_int_equal(count_rounds(), 1); /* in any case */
    begin_bench((char *)"--runtime=60", NULL);
    mover_bench_add(&bench, mover_now_ns());
    assert_true(mover_bench_goes_on(&bench));
    bench.until_ns = bench.begun_ns;
    assert_false(mover_bench_goes_on(&bench));
    assert_true(bench.count_max > 100000); /* no bound that one would meet */
    begin_bench((char *)"--count=9", (char *)"--runtime=0");
    assert_int_equal(count_rounds(), 1);
}

static void bench__prints_what_it_kept(void **state)
{
    (void)state;
    bench = (struct mover_bench){.request_bytes = 1000, .took_ns = 2000000000};
    for (int i = 1; i <= 100; i++)
        mover_histogram_add(&bench.latency, (uint64_t)i * 1000);
    begin_text();
    assert_int_equal(mover_bench_print(&bench, true, "echo", json_pack("{ss}", "rw", "read")), 0);
    end_text();
    json_t *all = json_loads(text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(all, "rw")), "read");
    assert_int_equal(json_integer_value(json_object_get(all, "request_bytes")), 1000);
    assert_int_equal(json_integer_value(json_object_get(all, "requests")), 100);
    assert_true(json_real_value(json_object_get(all, "seconds")) == 2);
    assert_true(json_real_value(json_object_get(all, "iops")) == 50);
    assert_true(json_real_value(json_object_get(all, "mb_per_s")) == 0.05);
    assert_true(json_real_value(json_object_get(all, "mean_us")) == 50.5);
    assert_true(json_real_value(json_object_get(all, "max_us")) == 100);
    assert_in_range(json_real_value(json_object_get(all, "p50_us")) * 10, 490, 510);
    assert_in_range(json_real_value(json_object_get(all, "p99_us")) * 10, 980, 1000);
    json_decref(all);
    begin_text();
    assert_int_equal(mover_bench_print(&bench, false, "echo", json_object()), 0);
    end_text();
    assert_non_null(strstr(text, "KIND             BYTES     COUNT    MEAN us"));
    assert_non_null(strstr(text, "\necho              1000       100      50.50 "));
    assert_non_null(strstr(text, " 100.00\n"));
}

static void bench__without_requests_has_zeros(void **state)
{
    (void)state;
    static const struct mover_histogram none;
    json_t *figures = mover_bench_figures(&none, 0, 4096);
    const char *key;
    json_t *value;
    json_object_foreach(figures, key, value) assert_true(json_number_value(value) == 0);
    assert_int_equal(json_object_size(figures), 8);
    json_decref(figures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table__has_columns),
        cmocka_unit_test(table__has_json_of_the_same_rows),
        cmocka_unit_test(table__text_may_have_another_unit),
        cmocka_unit_test(table__a_full_disk_fails),
        cmocka_unit_test(bench__ends_by_number),
        cmocka_unit_test(bench__ends_by_time),
        cmocka_unit_test(bench__prints_what_it_kept),
        cmocka_unit_test(bench__without_requests_has_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
