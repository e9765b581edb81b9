/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/mpa.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t words[] = "private data of the program";

/* In an allocation of its own, for the sanitizers to see its end. */
static uint8_t *frame_of(const struct sw_mpa_frame *frame, size_t *len)
{
    uint8_t made[SW_MPA_FRAME_MAX];
    *len = sw_mpa_encode(frame, made);
    uint8_t *bytes = malloc(*len);
    assert_non_null(bytes);
    memcpy(bytes, made, *len);
    return bytes;
}

static struct sw_mpa_frame enhanced(bool is_reply)
{
    return (struct sw_mpa_frame){.is_reply = is_reply,
                                 .flags = SW_MPA_ENHANCED | SW_MPA_CRC,
                                 .revision = 2,
                                 .peer_to_peer = true,
                                 .rtr = SW_MPA_RTR_SEND | SW_MPA_RTR_READ,
                                 .ird = 0x1234,
                                 .ord = 0x2345,
                                 .private_len = sizeof(words),
                                 .private_data = words};
}

static void sw_mpa_encode__lays_out_the_frames_of_revision_1(void **state)
{
    (void)state;
    uint8_t bytes[SW_MPA_FRAME_MAX];
    const struct sw_mpa_frame request = {
        .flags = SW_MPA_CRC, .revision = 1, .private_len = 2, .private_data = words};
    assert_int_equal(sw_mpa_encode(&request, bytes), 22);
    assert_memory_equal(bytes, "MPA ID Req Frame\x40\x01\x00\x02pr", 22);
    const struct sw_mpa_frame reply = {.is_reply = true, .flags = SW_MPA_REJECT, .revision = 1};
    assert_int_equal(sw_mpa_encode(&reply, bytes), 20);
    assert_memory_equal(bytes, "MPA ID Rep Frame\x20\x01\x00\x00", 20);
}

static void sw_mpa_encode__counts_the_negotiation_as_private_data(void **state)
{
    (void)state;
    uint8_t bytes[SW_MPA_FRAME_MAX];
    struct sw_mpa_frame frame = enhanced(false);
    frame.private_len = 1;
    assert_int_equal(sw_mpa_encode(&frame, bytes), 25);
    /* A and B with the IRD, D with the ORD */
    assert_memory_equal(bytes + 16, "\x50\x02\x00\x05\xd2\x34\x63\x45p", 9);
    frame.peer_to_peer = false;
    frame.rtr = SW_MPA_RTR_WRITE;
    sw_mpa_encode(&frame, bytes);
    assert_memory_equal(bytes + 20, "\x12\x34\xa3\x45", 4);
}

static void sw_mpa_decode__gives_back_what_was_written(void **state)
{
    (void)state;
    for (int is_reply = 0; is_reply < 2; is_reply++) {
        const struct sw_mpa_frame frame = enhanced(is_reply);
        struct sw_mpa_frame again;
        size_t len;
        uint8_t *bytes = frame_of(&frame, &len);
        assert_int_equal(sw_mpa_check(bytes, len, is_reply), SW_MPA_FAULT_NONE);
        assert_int_equal(sw_mpa_check(bytes, len, !is_reply), SW_MPA_FAULT_KEY);
        assert_int_equal(sw_mpa_decode(bytes, &again), len);
        assert_int_equal(again.is_reply, is_reply);
        assert_int_equal(again.rtr, frame.rtr);
        assert_int_equal(again.ird, frame.ird);
        assert_int_equal(again.ord, frame.ord);
        assert_true(again.peer_to_peer);
        assert_int_equal(again.private_len, sizeof(words));
        assert_memory_equal(again.private_data, words, sizeof(words));
        free(bytes);
    }
}

static void sw_mpa_check__waits_for_all_bytes(void **state)
{
    (void)state;
    const struct sw_mpa_frame frame = enhanced(false);
    size_t len;
    uint8_t *bytes = frame_of(&frame, &len);
    for (size_t there = 0; there < len; there++) {
        uint8_t *part = malloc(there + !there);
        assert_non_null(part);
        memcpy(part, bytes, there);
        assert_int_equal(sw_mpa_check(part, there, false), SW_MPA_FAULT_SHORT);
        free(part);
    }
    free(bytes);
}

static void sw_mpa_check__tells_a_fault_as_soon_as_it_is_seen(void **state)
{
    (void)state;
    uint8_t bytes[SW_MPA_FRAME_MAX] = "MPA ID Req Frame\x40\x02\x00\x00";
    assert_int_equal(sw_mpa_check((const uint8_t *)"GET", 3, false), SW_MPA_FAULT_KEY);
    bytes[17] = 3;
    assert_int_equal(sw_mpa_check(bytes, 18, false), SW_MPA_FAULT_REVISION);
    bytes[17] = 0;
    assert_int_equal(sw_mpa_check(bytes, 18, false), SW_MPA_FAULT_REVISION);
    bytes[17] = 2;
    bytes[16] = SW_MPA_ENHANCED;
    bytes[19] = 3; /* too little for what the flag says */
    assert_int_equal(sw_mpa_check(bytes, 20, false), SW_MPA_FAULT_LENGTH);
    bytes[16] = 0;
    bytes[18] = 2;
    bytes[19] = 0; /* 512 */
    assert_int_equal(sw_mpa_check(bytes, 20, false), SW_MPA_FAULT_SHORT);
    bytes[19] = 1;
    assert_int_equal(sw_mpa_check(bytes, 20, false), SW_MPA_FAULT_LENGTH);
}

static void sw_mpa_check__takes_unknown_flags_and_the_enhanced_one_of_revision_1(void **state)
{
    (void)state;
    const uint8_t *bytes = (const uint8_t *)"MPA ID Rep Frame\x1f\x01\x00\x00";
    struct sw_mpa_frame frame;
    assert_int_equal(sw_mpa_check(bytes, 20, true), SW_MPA_FAULT_NONE);
    assert_int_equal(sw_mpa_decode(bytes, &frame), 20);
    assert_false(sw_mpa_is_enhanced(&frame));
    assert_int_equal(frame.flags, 0x1f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_mpa_encode__lays_out_the_frames_of_revision_1),
        cmocka_unit_test(sw_mpa_encode__counts_the_negotiation_as_private_data),
        cmocka_unit_test(sw_mpa_decode__gives_back_what_was_written),
        cmocka_unit_test(sw_mpa_check__waits_for_all_bytes),
        cmocka_unit_test(sw_mpa_check__tells_a_fault_as_soon_as_it_is_seen),
        cmocka_unit_test(sw_mpa_check__takes_unknown_flags_and_the_enhanced_one_of_revision_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
