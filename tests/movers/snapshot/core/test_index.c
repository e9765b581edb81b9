/* SPDX-License-Identifier: BSD-2-Clause */
/* Indices: what was printed is read as it was, and what cannot be is refused with its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/core/index.h"

enum { MIB = 1 << 20, UNITS = 4 };

static const uint32_t BLOCKS[UNITS] = {256, 256, 10, 3};

static int parse_text(const char *text, char *why)
{
    struct snap_index index;
    int result = snap_index_parse(&index, text, strlen(text), MIB, UNITS, BLOCKS, why, 128);
    if (result == 0)
        snap_index_free(&index);
    return result;
}

static void index__comes_back(void **state)
{
    (void)state;
    struct sw_snap_range ranges[] = {
        {.name = "a \"quoted\" \\ name\n\xc3\xa4",
         .bytes = 24,
         .type = "F32",
         .dims = 2,
         .shape = {2, 3}},
        {.name = "part",
         .bytes = 8,
         .type = "I64",
         .dims = 1,
         .shape = {1},
         .at = {3},
         .whole = {4}},
        {.name = "raw", .bytes = 2 * MIB + 5},
        {.name = "none", .bytes = 0, .type = "U8", .dims = 1},
    };
    uint64_t bytes[] = {24, 8, 2 * MIB + 5, 0};
    struct snap_cut cut;
    struct snap_index made, read;
    char why[128], *text;
    size_t length;
    uint32_t blocks[8];
    assert_int_equal(snap_cut_make(&cut, bytes, 4, MIB), 0);
    assert_int_equal(snap_index_make(&made, ranges, &cut, why, sizeof(why)), 0);
    assert_int_equal(snap_index_print(&made, &text, &length), 0);
    for (uint32_t i = 0; i < cut.units_count; i++)
        blocks[i] = cut.units[i].blocks;
    assert_int_equal(
        snap_index_parse(&read, text, length, MIB, cut.units_count, blocks, why, sizeof(why)), 0);
    assert_int_equal(read.ranges_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(read.ranges[i].name, ranges[i].name);
        assert_int_equal(read.ranges[i].bytes, bytes[i]);
        assert_int_equal(read.ranges[i].unit, cut.places[i].unit);
        assert_int_equal(snap_index_find(&read, ranges[i].name), i);
    }
    assert_string_equal(read.ranges[2].type, "U8");
    assert_int_equal(read.ranges[0].shape[1], 3);
    assert_int_equal(read.ranges[1].at[0], 3);
    assert_int_equal(read.ranges[1].whole[0], 4);
    assert_null(read.ranges[0].whole);
    assert_int_equal(snap_index_find(&read, "nobody"), -ENOENT);
    free(text);
    snap_index_free(&made);
    snap_index_free(&read);
    snap_cut_free(&cut);
}

static void index__refuses_ranges(void **state)
{
    (void)state;
    static char long_name[300];
    memset(long_name, 'x', sizeof(long_name) - 1);
    const struct {
        struct sw_snap_range range;
        const char *why;
    } cases[] = {
        {{.name = NULL, .bytes = 8}, "no name"},
        {{.name = "", .bytes = 8}, "no name"},
        {{.name = long_name, .bytes = 8}, "255 bytes"},
        {{.name = "\xff", .bytes = 8}, "not UTF-8"},
        {{.name = "\xed\xa0\x80", .bytes = 8}, "not UTF-8"},
        {{.name = "b", .bytes = 8, .type = "a type of more than it"}, "15 bytes"},
        {{.name = "b", .bytes = 8, .dims = 9}, "8 dimensions"},
        {{.name = "b", .bytes = 8, .type = "F32", .dims = 1, .shape = {3}}, "shape"},
        {{.name = "b", .bytes = 8, .type = "U8", .dims = 1, .shape = {8}, .at = {5}, .whole = {9}},
         "leaves the tensor"},
        {{.name = "a", .bytes = 8}, "there twice"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sw_snap_range ranges[] = {{.name = "a", .bytes = 8}, cases[i].range};
        struct snap_cut cut;
        struct snap_index index;
        char why[256] = "";
        assert_int_equal(snap_cut_make(&cut, (uint64_t[]){8, 8}, 2, MIB), 0);
        assert_int_equal(snap_index_make(&index, ranges, &cut, why, sizeof(why)), -EINVAL);
        if (strstr(why, cases[i].why) == NULL)
            fail_msg("case %zu: %s", i, why);
        snap_cut_free(&cut);
    }
}

static void index__refuses_text(void **state)
{
    (void)state;
#define RANGE(name, unit, offset, bytes)                                                        \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" bytes "],\"unit\":" unit ",\"offset\":" offset \
    ",\"bytes\":" bytes "}"
    static const struct {
        const char *text, *why;
    } CASES[] = {
        {"", "a { is missing"},
        {"{", "a string is missing"},
        {"{} x", "after the end"},
        {"{" RANGE("a", "0", "0", "8"), "an end is missing"},
        {"{" RANGE("a", "0", "0", "8") "," RANGE("a", "0", "64", "8") "}", "a is there twice"},
        {"{" RANGE("a", "0", "0", "9") "," RANGE("b", "0", "8", "8") "}", "b overlaps"},
        {"{" RANGE("a", "0", "0", "2000000") "," RANGE("b", "1", "8", "8") "}", "b overlaps"},
        {"{" RANGE("a", "4", "0", "8") "}", "outside the units"},
        {"{" RANGE("a", "2", "40955", "8") "}", "leaves its unit"},
        {"{" RANGE("a", "0", "1048570", "8") "}", "leaves its unit"},
        {"{" RANGE("a", "1", "0", "1089536") "," RANGE("b", "3", "0", "12289") "}", "b leaves"},
        {"{" RANGE("a", "2", "0", "1048577") "}", "a short unit in its middle"},
        {"{" RANGE("a", "0", "0", "18446744073709551616") "}", "too big"},
        {"{" RANGE("a", "0", "0", "08") "}", "invalid token"},
        {"{" RANGE("a", "4294967296", "0", "8") "}", "too large"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"unit\":0,\"offset\":0}}", "is missing"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[9],\"unit\":0,\"offset\":0,\"bytes\":8}}", "shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", "duplicate object key"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"unit\":0,\"offset\":0,\"bytes\":8,\"other\":1}}",
         "not known"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"unit\":0.5,\"offset\":0,\"bytes\":8}}",
         "a number"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-8],\"unit\":0,\"offset\":0,\"bytes\":8}}",
         "a number"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"unit\":0,\"offset\":0,\"bytes\":"
         "1}}",
         "8 dimensions"},
        {"{\"\\ud800\":{}}", "Unicode"},
        {"{\"\\q\":{}}", "escape"},
        {"{\"a\nb\":{}}", "newline"},
        {"{\"\xc0\x80\":{}}", "unable to decode"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        char why[128] = "";
        assert_int_equal(parse_text(CASES[i].text, why), -EBADMSG);
        if (strstr(why, CASES[i].why) == NULL)
            fail_msg("case %zu: %s", i, why);
    }
    char why[128] = "";
    assert_int_equal(parse_text("{" RANGE("a", "1", "0", "1089536") "}", why), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(index__comes_back),
        cmocka_unit_test(index__refuses_ranges),
        cmocka_unit_test(index__refuses_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
