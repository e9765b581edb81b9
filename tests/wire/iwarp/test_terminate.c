/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/terminate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t read_request(uint8_t *ulpdu)
{
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_READ_REQUEST), .last = true, .msn = 7};
    const uint32_t header_len = sw_ddp_encode(&segment, ulpdu);
    for (uint32_t i = 0; i < SW_RDMAP_READ_BYTES; i++)
        ulpdu[header_len + i] = (uint8_t)(0x80 + i);
    return header_len + SW_RDMAP_READ_BYTES;
}

static void sw_terminate_encode__says_what_was_at_fault(void **state)
{
    (void)state;
    uint8_t ulpdu[64], body[SW_TERMINATE_MAX];
    const uint32_t len = read_request(ulpdu);
    struct sw_terminate terminate = sw_terminate_about(SW_TERMINATE_READ_BOUNDS, ulpdu, len);
    assert_int_equal(sw_terminate_encode(&terminate, body), 4 + 2 + 18 + 28);
    assert_memory_equal(body, "\x01\x01\xe0\x00\x00\x2e", 6);
    assert_memory_equal(body + 6, ulpdu, len);
    terminate = sw_terminate_about(SW_TERMINATE_CRC, NULL, 0);
    assert_int_equal(sw_terminate_encode(&terminate, body), 4);
    assert_memory_equal(body, "\x20\x02\x00\x00", 4);
    static const uint8_t write[14] = {0xc1, 0x40};
    terminate = sw_terminate_about(SW_TERMINATE_STAG, write, 14);
    assert_int_equal(sw_terminate_encode(&terminate, body), 4 + 2 + 14);
    assert_memory_equal(body, "\x11\x00\xc0\x00\x00\x0e\xc1\x40", 8);
}

static void sw_terminate_decode__gives_back_what_was_written(void **state)
{
    (void)state;
    uint8_t ulpdu[64], body[SW_TERMINATE_MAX];
    const uint32_t len = read_request(ulpdu);
    const struct sw_terminate terminate = sw_terminate_about(SW_TERMINATE_RIGHTS, ulpdu, len);
    const uint32_t body_len = sw_terminate_encode(&terminate, body);
    struct sw_terminate again;
    assert_true(sw_terminate_check(body, body_len));
    sw_terminate_decode(body, body_len, &again);
    assert_int_equal(again.cause, SW_TERMINATE_RIGHTS);
    assert_false(again.is_swapped);
    assert_int_equal(again.segment_len, len);
    assert_int_equal(again.ddp_len, 18);
    assert_memory_equal(again.ddp, ulpdu, 18);
    assert_int_equal(again.read_len, 28);
    assert_memory_equal(again.read, ulpdu + 18, 28);
}

static void sw_terminate_decode__understands_siws_form(void **state)
{
    (void)state;
    uint8_t body[SW_TERMINATE_MAX] = {0x21, 0x02, 0x03, 0, 0, 40, 0x41, 0x43}; /* 0x12 02 */
    struct sw_terminate out;
    sw_terminate_decode(body, 4 + 2 + 18, &out);
    assert_true(out.is_swapped);
    assert_int_equal(out.cause, SW_TERMINATE_NO_RECEIVE);
    assert_int_equal(out.segment_len, 40);
    assert_int_equal(out.ddp_len, 18);
    assert_int_equal(out.read_len, 0);
}

static void sw_terminate_decode__leaves_out_what_is_not_whole(void **state)
{
    (void)state;
    uint8_t ulpdu[64], body[SW_TERMINATE_MAX];
    const uint32_t len = read_request(ulpdu);
    const struct sw_terminate terminate = sw_terminate_about(SW_TERMINATE_RIGHTS, ulpdu, len);
    const uint32_t body_len = sw_terminate_encode(&terminate, body);
    for (uint32_t there = 0; there < body_len; there++) {
        uint8_t *part = malloc(there + !there);
        struct sw_terminate out;
        assert_non_null(part);
        memcpy(part, body, there);
        assert_int_equal(sw_terminate_check(part, there), there >= 4);
        if (there >= 4) {
            sw_terminate_decode(part, there, &out);
            assert_int_equal(out.cause, SW_TERMINATE_RIGHTS);
            assert_int_equal(out.ddp_len, there >= 24 ? 18 : 0);
            assert_int_equal(out.read_len, 0);
        }
        free(part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_terminate_encode__says_what_was_at_fault),
        cmocka_unit_test(sw_terminate_decode__gives_back_what_was_written),
        cmocka_unit_test(sw_terminate_decode__understands_siws_form),
        cmocka_unit_test(sw_terminate_decode__leaves_out_what_is_not_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
