/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/iwarp/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/bytes.h"
#include "wire/iwarp/crc32c.h"

static const uint32_t lens[] = {14, 46, 15, 16, 17, 100, 14};
enum { COUNT = sizeof(lens) / sizeof(*lens), ROOM = 128, STREAM_MAX = 512 };

/* FPDUs of each pad, one behind the other. */
static size_t make_stream(bool has_crc, uint8_t bytes[STREAM_MAX])
{
    size_t at = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint8_t *fpdu = bytes + at;
        const uint32_t covered = SW_FPDU_LENGTH_BYTES + lens[i];
        sw_be16_store(fpdu, (uint16_t)lens[i]);
        memset(fpdu + SW_FPDU_LENGTH_BYTES, (int)(0x40 + i), lens[i]);
        sw_fpdu_finish(sw_crc32c_add(0, fpdu, covered), lens[i], has_crc, fpdu + covered);
        at += sw_fpdu_len(lens[i]);
    }
    return at;
}

/* Takes bytes until none are left; what is found is the FPDUs in order. */
static enum sw_iwarp_found take_all(struct sw_iwarp_stream *s, const uint8_t *bytes, size_t len,
                                    uint32_t *count)
{
    enum sw_iwarp_found found;
    struct sw_iwarp_fpdu fpdu;
    uint8_t *copy = malloc(len + !len); /* for the sanitizers to see its end */
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    size_t at = 0;
    for (size_t used;
         (found = sw_iwarp_stream_take(s, copy + at, len - at, &used, &fpdu)) == SW_IWARP_FPDU;
         at += used, (*count)++) {
        assert_true(*count < COUNT);
        assert_int_equal(fpdu.len, lens[*count]);
        for (uint32_t i = 0; i < fpdu.len; i++)
            assert_int_equal(fpdu.ulpdu[i], 0x40 + *count);
    }
    free(copy);
    return found;
}

static void sw_iwarp_stream_take__finds_all_at_every_two_cuts(void **state)
{
    (void)state;
    uint8_t bytes[STREAM_MAX], buffer[ROOM];
    for (int has_crc = 0; has_crc < 2; has_crc++) {
        const size_t len = make_stream(has_crc, bytes);
        for (size_t first = 0; first <= len; first++)
            for (size_t second = first; second <= len; second++) {
                struct sw_iwarp_stream s;
                uint32_t count = 0;
                sw_iwarp_stream_init(&s, buffer, sizeof(buffer), has_crc);
                take_all(&s, bytes, first, &count);
                take_all(&s, bytes + first, second - first, &count);
                assert_int_equal(take_all(&s, bytes + second, len - second, &count), SW_IWARP_MORE);
                assert_int_equal(count, COUNT);
                assert_true(sw_iwarp_stream_is_between(&s));
            }
    }
}

static void sw_iwarp_stream_take__finds_all_in_pieces_of_every_length(void **state)
{
    (void)state;
    uint8_t bytes[STREAM_MAX], buffer[ROOM];
    const size_t len = make_stream(true, bytes);
    for (size_t piece = 1; piece <= len; piece++) {
        struct sw_iwarp_stream s;
        uint32_t count = 0;
        sw_iwarp_stream_init(&s, buffer, sizeof(buffer), true);
        for (size_t at = 0; at < len; at += piece)
            take_all(&s, bytes + at, len - at < piece ? len - at : piece, &count);
        assert_int_equal(count, COUNT);
    }
}

static void sw_iwarp_stream_take__gives_out_nothing_damaged(void **state)
{
    (void)state;
    uint8_t bytes[STREAM_MAX], buffer[ROOM];
    const size_t len = make_stream(true, bytes);
    for (size_t bit = 0; bit < 8 * len; bit++) {
        struct sw_iwarp_stream s;
        uint32_t count = 0;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        sw_iwarp_stream_init(&s, buffer, sizeof(buffer), true);
        const enum sw_iwarp_found found = take_all(&s, bytes, len, &count);
        /* A length that has become longer waits for bytes that do not come. */
        assert_true(found == SW_IWARP_BAD_CRC || found == SW_IWARP_BAD_LENGTH ||
                    (found == SW_IWARP_MORE && !sw_iwarp_stream_is_between(&s)));
        assert_true(count < COUNT);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void sw_iwarp_stream_take__does_not_look_at_the_crc_of_others(void **state)
{
    (void)state;
    uint8_t bytes[STREAM_MAX], buffer[ROOM];
    struct sw_iwarp_stream s;
    uint32_t count = 0;
    const size_t len = make_stream(false, bytes);
    bytes[17] = 0x99; /* within the first one's CRC */
    sw_iwarp_stream_init(&s, buffer, sizeof(buffer), false);
    assert_int_equal(take_all(&s, bytes, len, &count), SW_IWARP_MORE);
    assert_int_equal(count, COUNT);
}

static void sw_iwarp_stream_take__bounds_the_length(void **state)
{
    (void)state;
    uint8_t buffer[ROOM];
    static const struct {
        uint16_t len;
        enum sw_iwarp_found found;
    } cases[] = {
        {0, SW_IWARP_BAD_LENGTH}, {13, SW_IWARP_BAD_LENGTH},  {14, SW_IWARP_MORE},
        {122, SW_IWARP_MORE},     {123, SW_IWARP_BAD_LENGTH}, {65535, SW_IWARP_BAD_LENGTH},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (size_t cut = 0; cut <= 2; cut++) {
            struct sw_iwarp_stream s;
            uint8_t bytes[2];
            uint32_t count = 0;
            sw_be16_store(bytes, cases[i].len);
            sw_iwarp_stream_init(&s, buffer, sizeof(buffer), true);
            take_all(&s, bytes, cut, &count);
            assert_int_equal(take_all(&s, bytes + cut, 2 - cut, &count), cases[i].found);
            if (cases[i].found == SW_IWARP_BAD_LENGTH) /* and it stays so */
                assert_int_equal(take_all(&s, bytes, 2, &count), SW_IWARP_BAD_LENGTH);
        }
}

static void sw_iwarp_stream_skip__leaves_a_gap_in_what_is_given_out(void **state)
{
    (void)state;
    uint8_t bytes[STREAM_MAX], buffer[ROOM];
    struct sw_iwarp_stream s;
    struct sw_iwarp_partial partial;
    struct sw_iwarp_fpdu fpdu;
    size_t used;
    make_stream(false, bytes);
    const uint8_t *second = bytes + sw_fpdu_len(lens[0]);
    sw_iwarp_stream_init(&s, buffer, sizeof(buffer), false);
    assert_false(sw_iwarp_stream_partial(&s, &partial));
    assert_int_equal(sw_iwarp_stream_take(&s, second, 1, &used, &fpdu), SW_IWARP_MORE);
    assert_false(sw_iwarp_stream_partial(&s, &partial)); /* its length is not known */
    assert_int_equal(sw_iwarp_stream_take(&s, second + 1, 19, &used, &fpdu), SW_IWARP_MORE);
    assert_true(sw_iwarp_stream_partial(&s, &partial));
    assert_int_equal(partial.have, 18);
    assert_int_equal(partial.len, lens[1]);
    assert_memory_equal(partial.ulpdu, second + 2, 18);
    memset(buffer + 20, 0xee, sizeof(buffer) - 20);
    sw_iwarp_stream_skip(&s, 20);
    const size_t left = sw_fpdu_len(lens[1]) - 40;
    assert_int_equal(sw_iwarp_stream_take(&s, second + 40, left, &used, &fpdu), SW_IWARP_FPDU);
    assert_int_equal(used, left);
    assert_int_equal(fpdu.len, lens[1]);
    assert_memory_equal(fpdu.ulpdu, second + 2, 18);
    assert_int_equal(fpdu.ulpdu[18], 0xee);
    assert_memory_equal(fpdu.ulpdu + 38, second + 40, 8);
    assert_true(sw_iwarp_stream_is_between(&s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_iwarp_stream_take__finds_all_at_every_two_cuts),
        cmocka_unit_test(sw_iwarp_stream_take__finds_all_in_pieces_of_every_length),
        cmocka_unit_test(sw_iwarp_stream_take__gives_out_nothing_damaged),
        cmocka_unit_test(sw_iwarp_stream_take__does_not_look_at_the_crc_of_others),
        cmocka_unit_test(sw_iwarp_stream_take__bounds_the_length),
        cmocka_unit_test(sw_iwarp_stream_skip__leaves_a_gap_in_what_is_given_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
