/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/aeth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void sw_aeth_class_of__splits_the_syndrome(void **state)
{
    (void)state;
    assert_int_equal(sw_aeth_class_of(0x1f), SW_AETH_ACK);
    assert_int_equal(sw_aeth_class_of(0x2c), SW_AETH_RNR);
    assert_int_equal(sw_aeth_class_of(0x40), SW_AETH_RESERVED);
    assert_int_equal(sw_aeth_class_of(0x63), SW_AETH_NAK);
    assert_int_equal(sw_aeth_value_of(0x63), SW_NAK_CODE_OPERATIONAL);
    assert_int_equal(sw_aeth_value_of(0x2c), 12);
    assert_int_equal(sw_aeth_syndrome(SW_AETH_NAK, SW_NAK_CODE_ACCESS), 0x62);
    assert_int_equal(sw_aeth_syndrome(SW_AETH_ACK, SW_AETH_NO_CREDITS), 0x1f);
    for (unsigned byte = 0; byte < 0x80; byte++) /* bit 7 is reserved */
        assert_int_equal(
            sw_aeth_syndrome(sw_aeth_class_of((uint8_t)byte), sw_aeth_value_of((uint8_t)byte)),
            byte);
}

/* IBTA Vol1 table 46, in microseconds. */
static void sw_rnr_timer_ns__table(void **state)
{
    (void)state;
    static const double us[32] = {655360, 10,    20,    30,     40,     60,     80,     120,
                                  160,    240,   320,   480,    640,    960,    1280,   1920,
                                  2560,   3840,  5120,  7680,   10240,  15360,  20480,  30720,
                                  40960,  61440, 81920, 122880, 163840, 245760, 327680, 491520};
    for (uint8_t code = 0; code < 32; code++)
        assert_int_equal(sw_rnr_timer_ns(code), (uint64_t)(us[code] * 1000));
    assert_int_equal(sw_rnr_timer_ns(0x20 | 1), 10000); /* of the syndrome, five bits count */
}

/* IBTA Vol1 table 59: 0, 1, 2, 3, then each power of two and one and a half of it. */
static void sw_aeth_credits__table(void **state)
{
    (void)state;
    for (uint8_t code = 0; code < 4; code++)
        assert_int_equal(sw_aeth_credits(code), code);
    for (uint8_t code = 4; code < 31; code++)
        assert_int_equal(sw_aeth_credits(code), (2u | (code & 1)) << (code / 2 - 1));
    assert_int_equal(sw_aeth_credits(30), 32768);
    assert_int_equal(sw_aeth_credits(SW_AETH_NO_CREDITS), UINT32_MAX);
}

static void sw_aeth_credit_code__never_promises_more(void **state)
{
    (void)state;
    for (uint32_t count = 0; count < 40000; count++) {
        uint8_t code = sw_aeth_credit_code(count);
        assert_true(sw_aeth_credits(code) <= count);
        assert_true(code == 30 || sw_aeth_credits(code + 1) > count);
    }
    assert_int_equal(sw_aeth_credit_code(UINT32_MAX), 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_aeth_class_of__splits_the_syndrome),
        cmocka_unit_test(sw_rnr_timer_ns__table),
        cmocka_unit_test(sw_aeth_credits__table),
        cmocka_unit_test(sw_aeth_credit_code__never_promises_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
