/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* By the words of the specification, a bit at a time. */
static uint32_t reference(const uint8_t *bytes, size_t len)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void sw_crc32c_add__knows_the_check_value(void **state)
{
    (void)state;
    assert_int_equal(sw_crc32c_add(0, "123456789", 9), 0xe3069283);
    assert_int_equal(sw_crc32c_add(0, "", 0), 0);
    const uint8_t zeros[32] = {0}; /* RFC 3720 B.4 */
    assert_int_equal(sw_crc32c_add(0, zeros, sizeof(zeros)), 0x8a9136aa);
}

static void sw_crc32c_add__is_the_reference_at_every_length(void **state)
{
    (void)state;
    uint8_t bytes[600];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7 + (i >> 8));
    for (size_t len = 0; len <= sizeof(bytes); len++)
        assert_int_equal(sw_crc32c_add(0, bytes, len), reference(bytes, len));
}

static void sw_crc32c_add__goes_on_in_pieces(void **state)
{
    (void)state;
    static const uint8_t bytes[] = "a stream that is cut in two at each of its places in turn";
    for (size_t cut = 0; cut <= sizeof(bytes); cut++) {
        const uint32_t first = sw_crc32c_add(0, bytes, cut);
        assert_int_equal(sw_crc32c_add(first, bytes + cut, sizeof(bytes) - cut),
                         reference(bytes, sizeof(bytes)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_crc32c_add__knows_the_check_value),
        cmocka_unit_test(sw_crc32c_add__is_the_reference_at_every_length),
        cmocka_unit_test(sw_crc32c_add__goes_on_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
