/* SPDX-License-Identifier: BSD-2-Clause */
/* What the host's commands compute and print: patterns, sizes, strings, statuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "nvme/command/bench.h"

static void pattern__knows_what_is_wrong(void **state)
{
    uint8_t block[512], other[512];
    (void)state;
    nv_pattern_fill(block, sizeof(block), 7, 3);
    assert_null(nv_pattern_check(block, sizeof(block), 7, 3));
    assert_string_equal(nv_pattern_check(block, sizeof(block), 8, 3), "a block of another address");
    assert_non_null(strstr(nv_pattern_check(block, sizeof(block), 7, 4), "older"));
    assert_non_null(strstr(nv_pattern_check(block, sizeof(block), 7, 2), "later"));
    nv_pattern_fill(other, sizeof(other), 7, 2);
    memcpy(block + 256, other + 256, 256);
    assert_non_null(strstr(nv_pattern_check(block, sizeof(block), 7, 3), "torn"));
    memset(block, 0, sizeof(block));
    assert_non_null(strstr(nv_pattern_check(block, sizeof(block), 7, 3), "no block"));
}

static void sizes__are_parsed(void **state)
{
    uint64_t value = 0;
    (void)state;
    assert_true(nv_parse_size("4k", UINT64_MAX, &value));
    assert_int_equal(value, 4096);
    assert_true(nv_parse_size("2MiB", UINT64_MAX, &value));
    assert_int_equal(value, 2 << 20);
    assert_true(nv_parse_size("0x10", UINT64_MAX, &value));
    assert_int_equal(value, 16);
    const char *const wrong[] = {"", "-1", " 1", "k", "1x", "1kk", "4097", "99999999999999999999"};
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_false(nv_parse_size(wrong[i], 4096, &value));
    assert_false(nv_parse_size("17179869185G", UINT64_MAX, &value));
}

static void strings__do_not_reach_the_terminal(void **state)
{
    char out[16];
    (void)state;
    nv_clean_string("serial   ", 9, out, sizeof(out));
    assert_string_equal(out, "serial");
    nv_clean_string("\033[2Ja\xff", 6, out, sizeof(out));
    assert_string_equal(out, "?[2Ja?");
    nv_clean_string("0123456789abcdefghi", 19, out, sizeof(out));
    assert_string_equal(out, "0123456789abcde");
    nv_clean_string("    ", 4, out, sizeof(out));
    assert_string_equal(out, "");
}

static void statuses__have_texts(void **state)
{
    (void)state;
    for (int i = SW_NVME_OK; i <= SW_NVME_SYSTEM; i++)
        assert_string_not_equal(sw_nvme_status_text((enum sw_nvme_status)i),
                                "a status that is not known");
    assert_string_equal(sw_nvme_status_text((enum sw_nvme_status)99), "a status that is not known");
    /* Code types are told apart: 0x80 of each. */
    assert_string_equal(sw_nvme_code_text(0x4080), "LBA Out of Range");
    assert_string_equal(sw_nvme_code_text(0x180), "Incompatible Format");
    assert_string_equal(sw_nvme_code_text(0x280), "Write Fault");
    assert_string_equal(sw_nvme_code_text(0x285), "Compare Failure");
    assert_string_equal(sw_nvme_code_text(0x7ff), "Vendor Specific");
    for (unsigned i = 0; i < 0x10000; i++)
        assert_non_null(sw_nvme_code_text((uint16_t)i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pattern__knows_what_is_wrong),
        cmocka_unit_test(sizes__are_parsed),
        cmocka_unit_test(strings__do_not_reach_the_terminal),
        cmocka_unit_test(statuses__have_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
