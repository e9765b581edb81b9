/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/fpdu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/bytes.h"
#include "wire/iwarp/crc32c.h"

static void sw_fpdu_len__pads_length_and_ulpdu_to_four(void **state)
{
    (void)state;
    assert_int_equal(sw_fpdu_len(14), 20); /* the smallest: a WRITE of nothing */
    assert_int_equal(sw_fpdu_len(22), 28);
    for (uint32_t len = 14; len < 200; len++) {
        assert_in_range(sw_fpdu_pad(len), 0, 3);
        assert_int_equal((SW_FPDU_LENGTH_BYTES + len + sw_fpdu_pad(len)) % 4, 0);
    }
    assert_true(sw_fpdu_len(SW_FPDU_ULPDU_MAX) <= SW_FPDU_MAX);
}

static void sw_fpdu_ulpdu_max__fits_and_one_more_does_not(void **state)
{
    (void)state;
    for (uint32_t max = 256; max < 9100; max++) {
        const uint32_t len = sw_fpdu_ulpdu_max(max);
        assert_true(sw_fpdu_len(len) <= max);
        assert_true(sw_fpdu_len(len + 1) > max);
    }
    assert_int_equal(sw_fpdu_ulpdu_max(1448), 1442); /* siw at MTU 1500 */
    assert_int_equal(sw_fpdu_ulpdu_max(1u << 20), SW_FPDU_ULPDU_MAX);
}

static uint32_t make_fpdu(uint32_t ulpdu_len, bool has_crc, uint8_t *to)
{
    memset(to, 0xaa, 64);
    sw_be16_store(to, (uint16_t)ulpdu_len);
    const uint32_t at = SW_FPDU_LENGTH_BYTES + ulpdu_len;
    return at + sw_fpdu_finish(sw_crc32c_add(0, to, at), ulpdu_len, has_crc, to + at);
}

static void sw_fpdu_finish__covers_length_to_pad_least_byte_first(void **state)
{
    (void)state;
    uint8_t fpdu[64];
    for (uint32_t len = 14; len < 40; len++) {
        const uint32_t total = make_fpdu(len, true, fpdu);
        assert_int_equal(total, sw_fpdu_len(len));
        const uint32_t crc = sw_crc32c_add(0, fpdu, total - 4);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(fpdu[total - 4 + i], crc >> 8 * i & 0xff);
        for (uint32_t i = SW_FPDU_LENGTH_BYTES + len; i < total - 4; i++)
            assert_int_equal(fpdu[i], 0);
    }
}

static void sw_fpdu_finish__writes_zeros_without_crc(void **state)
{
    (void)state;
    uint8_t fpdu[64];
    const uint32_t total = make_fpdu(17, false, fpdu);
    assert_int_equal(sw_le32_load(fpdu + total - 4), 0);
}

static void sw_fpdu_is_intact__sees_every_bit(void **state)
{
    (void)state;
    uint8_t fpdu[64];
    const uint32_t total = make_fpdu(21, true, fpdu);
    assert_true(sw_fpdu_is_intact(fpdu, 21));
    for (uint32_t bit = 0; bit < 8 * total; bit++) {
        fpdu[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(sw_fpdu_is_intact(fpdu, 21));
        fpdu[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_fpdu_len__pads_length_and_ulpdu_to_four),
        cmocka_unit_test(sw_fpdu_ulpdu_max__fits_and_one_more_does_not),
        cmocka_unit_test(sw_fpdu_finish__covers_length_to_pad_least_byte_first),
        cmocka_unit_test(sw_fpdu_finish__writes_zeros_without_crc),
        cmocka_unit_test(sw_fpdu_is_intact__sees_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
