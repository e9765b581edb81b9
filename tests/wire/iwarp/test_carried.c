/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/carried.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/bytes.h"
#include "wire/packet.h"

enum { HEADERS = 12 + 8, LEAST = HEADERS + SW_ICRC_BYTES, UD_SEND_ONLY = 0x64 };

static uint8_t bytes[SW_CARRIED_MAX + 16];

/* Returns the length of the ULPDU. */
static uint32_t make_datagram(uint32_t len_bytes, uint8_t opcode)
{
    uint8_t *packet = bytes + SW_CARRIED_HEAD_BYTES;
    const struct sw_carried carried = {.msn = 7,
                                       .traffic_class = 0x21,
                                       .hop_limit = 63,
                                       .source_port = 0xc123,
                                       .len_bytes = len_bytes,
                                       .packet = packet};
    memset(packet, 0x5a, len_bytes);
    packet[0] = opcode;
    sw_carried_encode(&carried, bytes);
    return sw_carried_ulpdu_len(&carried);
}

static bool is_taken(uint32_t len)
{
    struct sw_carried out;
    return sw_carried_decode(bytes + SW_FPDU_LENGTH_BYTES, len, &out);
}

static void sw_carried_decode__gives_what_was_encoded(void **state)
{
    (void)state;
    for (uint32_t len = LEAST; len <= SW_CARRIED_PACKET_MAX; len += 100) {
        struct sw_carried out;
        const uint32_t ulpdu_len = make_datagram(len, UD_SEND_ONLY);
        assert_int_equal(sw_be16_load(bytes), ulpdu_len);
        assert_true(sw_carried_decode(bytes + SW_FPDU_LENGTH_BYTES, ulpdu_len, &out));
        assert_int_equal(out.msn, 7);
        assert_int_equal(out.traffic_class, 0x21);
        assert_int_equal(out.hop_limit, 63);
        assert_int_equal(out.source_port, 0xc123);
        assert_int_equal(out.len_bytes, len);
        assert_ptr_equal(out.packet, bytes + SW_CARRIED_HEAD_BYTES);
    }
}

static void sw_carried_decode__refuses_other_lengths(void **state)
{
    (void)state;
    const uint32_t len = make_datagram(LEAST, UD_SEND_ONLY);
    for (uint32_t shorter = 0; shorter < len; shorter++)
        assert_false(is_taken(shorter));
    assert_true(is_taken(len));
    assert_true(is_taken(make_datagram(SW_CARRIED_PACKET_MAX, UD_SEND_ONLY)));
    assert_false(is_taken(make_datagram(SW_CARRIED_PACKET_MAX, UD_SEND_ONLY) + 1));
}

/* A connected queue pair's packets are refused: they prove themselves by what TCP does not show. */
static void sw_carried_decode__takes_datagrams_alone(void **state)
{
    (void)state;
    for (uint32_t opcode = 0; opcode < 256; opcode++)
        assert_int_equal(is_taken(make_datagram(LEAST, (uint8_t)opcode)), opcode >> 5 == 3);
}

static void sw_carried_decode__refuses_what_is_no_send(void **state)
{
    (void)state;
    static const struct {
        uint32_t at;
        uint8_t value;
    } changes[] = {
        {0, 0x01}, /* not the last segment */
        {0, 0xc1}, /* tagged */
        {0, 0x42}, /* another version of DDP */
        {1, 0x44}, /* SEND with invalidate */
        {1, 0x83}, /* another version of RDMAP */
        {9, 1},    /* another queue */
        {17, 4},   /* an offset */
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        const uint32_t len = make_datagram(LEAST, UD_SEND_ONLY);
        bytes[SW_FPDU_LENGTH_BYTES + changes[i].at] = changes[i].value;
        assert_false(is_taken(len));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_carried_decode__gives_what_was_encoded),
        cmocka_unit_test(sw_carried_decode__refuses_other_lengths),
        cmocka_unit_test(sw_carried_decode__takes_datagrams_alone),
        cmocka_unit_test(sw_carried_decode__refuses_what_is_no_send),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
