/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A field in each byte, so that none can be mistaken for another. */
static struct sw_packet full(uint8_t opcode, uint32_t payload_len)
{
    static const uint8_t payload[64] =
        "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return (struct sw_packet){
        .bth = {.opcode = opcode,
                .reserved6 = 0x2a,
                .reserved7 = 0x55,
                .solicited = true,
                .becn = true,
                .ack_req = true,
                .pkey = 0x8123,
                .dest_qpn = 0x456789,
                .psn = 0xabcdef},
        .reth = {.addr = 0x0102030405060708, .rkey = 0x090a0b0c, .len_bytes = 0x0d0e0f10},
        .atomic = {.addr = 0x1112131415161718,
                   .rkey = 0x191a1b1c,
                   .swap_add = 0x2122232425262728,
                   .compare = 0x292a2b2c2d2e2f30},
        .original = 0x3132333435363738,
        .aeth = {.syndrome = 0x1f, .msn = 0x414243},
        .deth = {.qkey = 0x51525354, .src_qpn = 0x555657},
        .imm_be = 0x61626364,
        .inv_rkey = 0x65666768,
        .srq_num = 0x717273,
        .acked_psn = 0x818283,
        .flush_type = SW_FLUSH_PERSISTENT | SW_FLUSH_REGION,
        .payload_len = payload_len,
        .payload = payload,
    };
}

/* In an allocation of its own, for the sanitizers to see its end. */
static uint8_t *datagram_of(const struct sw_packet *packet, size_t *len)
{
    *len = sw_packet_len(sw_opcode_of(packet->bth.opcode), packet->payload_len);
    uint8_t *datagram = calloc(1, *len);
    assert_non_null(datagram);
    size_t at = sw_packet_encode_headers(packet, datagram, *len);
    assert_int_not_equal(at, 0);
    memcpy(datagram + at, packet->payload, packet->payload_len);
    return datagram;
}

static enum sw_packet_fault decode_first(const uint8_t *datagram, size_t len)
{
    struct sw_packet untouched, packet;
    memset(&untouched, 0x5a, sizeof(untouched));
    packet = untouched;
    uint8_t *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, datagram, len);
    enum sw_packet_fault fault = sw_packet_decode(copy, len, &packet);
    if (fault)
        assert_memory_equal(&packet, &untouched, sizeof(packet));
    free(copy);
    return fault;
}

static void sw_packet_encode_headers__bth_by_bits(void **state)
{
    (void)state;
    /* IBTA Vol1 9.2, figure of the BTH. */
    static const uint8_t expected[12] = {0x04, 0x80 | 1 << 4, 0x81, 0x23, 0x40 | 0x2a, 0x45,
                                         0x67, 0x89,          0xd5, 0xab, 0xcd,        0xef};
    struct sw_packet packet = full(0x04, 7);
    uint8_t headers[SW_HEADERS_MAX];
    assert_int_equal(sw_packet_encode_headers(&packet, headers, sizeof(headers)), 12);
    assert_memory_equal(headers, expected, sizeof(expected));

    packet.bth = (struct sw_bth){
        .opcode = 0x04, .mig_req = true, .fecn = true, .pkey = 0xffff, .dest_qpn = 1, .psn = 2};
    static const uint8_t others[12] = {0x04, 0x40, 0xff, 0xff, 0x80, 0, 0, 1, 0, 0, 0, 2};
    packet.payload_len = 8;
    assert_int_equal(sw_packet_encode_headers(&packet, headers, sizeof(headers)), 12);
    assert_memory_equal(headers, others, sizeof(others));
}

static void expect_extended(uint8_t opcode, const char *hex)
{
    struct sw_packet packet = full(opcode, 0);
    uint8_t headers[SW_HEADERS_MAX];
    char text[2 * SW_HEADERS_MAX + 1] = "";
    size_t len = sw_packet_encode_headers(&packet, headers, sizeof(headers));
    for (size_t i = SW_BTH_BYTES; i < len; i++)
        snprintf(text + 2 * (i - SW_BTH_BYTES), 3, "%02x", headers[i]);
    assert_string_equal(text, hex);
}

/* Each extended header once, at its place among others. The immediate lies as it is in memory. */
static void sw_packet_encode_headers__extended(void **state)
{
    (void)state;
    expect_extended(0x06, "0102030405060708090a0b0c0d0e0f10");
    expect_extended(0x0b, "0102030405060708090a0b0c0d0e0f1064636261");
    expect_extended(0x11, "1f414243");
    expect_extended(0x12, "1f4142433132333435363738");
    expect_extended(0x13, "1112131415161718191a1b1c2122232425262728292a2b2c2d2e2f30");
    expect_extended(0x17, "65666768");
    expect_extended(0x1c, "000000120102030405060708090a0b0c0d0e0f10");
    expect_extended(0x64, "5152535400555657");
    expect_extended(0x65, "515253540055565764636261");
    expect_extended(0x81, "00000000000000000000000000000000");
    expect_extended(0xab, "007172730102030405060708090a0b0c0d0e0f1064636261");
    expect_extended(0xb7, "0071727365666768");
}

static void sw_packet_encode_headers__keeps_in_its_room(void **state)
{
    (void)state;
    struct sw_packet packet = full(0x13, 0);
    uint8_t headers[SW_HEADERS_MAX];
    for (size_t room = 0; room < 40; room++)
        assert_int_equal(sw_packet_encode_headers(&packet, headers, room), 0);
    assert_int_equal(sw_packet_encode_headers(&packet, headers, 40), 40);
    packet.bth.opcode = 0x15;
    assert_int_equal(sw_packet_encode_headers(&packet, headers, sizeof(headers)), 0);
}

static void expect_same(const struct sw_packet *a, const struct sw_packet *b)
{
    uint16_t headers = a->opcode->headers;
    assert_int_equal(b->bth.pad, sw_packet_pad(b->payload_len));
    assert_int_equal(a->bth.opcode, b->bth.opcode);
    assert_int_equal(a->bth.dest_qpn, b->bth.dest_qpn);
    assert_int_equal(a->bth.psn, b->bth.psn);
    assert_int_equal(a->bth.pkey, b->bth.pkey);
    assert_int_equal(a->bth.reserved6, b->bth.reserved6);
    assert_int_equal(a->bth.reserved7, b->bth.reserved7);
    assert_true(b->bth.solicited && b->bth.becn && b->bth.ack_req);
    assert_false(b->bth.fecn || b->bth.mig_req);
    assert_int_equal(b->reth.addr, headers & SW_HEADER_RETH ? a->reth.addr : 0);
    assert_int_equal(b->reth.rkey, headers & SW_HEADER_RETH ? a->reth.rkey : 0);
    assert_int_equal(b->reth.len_bytes, headers & SW_HEADER_RETH ? a->reth.len_bytes : 0);
    assert_int_equal(b->atomic.addr, headers & SW_HEADER_ATOMIC ? a->atomic.addr : 0);
    assert_int_equal(b->atomic.rkey, headers & SW_HEADER_ATOMIC ? a->atomic.rkey : 0);
    assert_int_equal(b->atomic.swap_add, headers & SW_HEADER_ATOMIC ? a->atomic.swap_add : 0);
    assert_int_equal(b->atomic.compare, headers & SW_HEADER_ATOMIC ? a->atomic.compare : 0);
    assert_int_equal(b->original, headers & SW_HEADER_ATOMIC_ACK ? a->original : 0);
    const bool acks = headers & (SW_HEADER_AETH | SW_HEADER_PIGGYBACK);
    assert_int_equal(b->aeth.syndrome, acks ? a->aeth.syndrome : 0);
    assert_int_equal(b->aeth.msn, acks ? a->aeth.msn : 0);
    assert_int_equal(b->acked_psn, headers & SW_HEADER_PIGGYBACK ? a->acked_psn : 0);
    assert_int_equal(b->deth.qkey, headers & SW_HEADER_DETH ? a->deth.qkey : 0);
    assert_int_equal(b->deth.src_qpn, headers & SW_HEADER_DETH ? a->deth.src_qpn : 0);
    assert_int_equal(b->imm_be, headers & SW_HEADER_IMM ? a->imm_be : 0);
    assert_int_equal(b->inv_rkey, headers & SW_HEADER_IETH ? a->inv_rkey : 0);
    assert_int_equal(b->srq_num, headers & SW_HEADER_XRCETH ? a->srq_num : 0);
    assert_int_equal(b->flush_type, headers & SW_HEADER_FETH ? a->flush_type : 0);
    assert_int_equal(a->payload_len, b->payload_len);
    assert_memory_equal(a->payload, b->payload, a->payload_len);
}

static void sw_packet_decode__every_opcode_and_pad(void **state)
{
    (void)state;
    for (unsigned number = 0; number < 256; number++) {
        const struct sw_opcode *opcode = sw_opcode_of((uint8_t)number);
        for (uint32_t payload_len = 0; opcode && payload_len < (opcode->has_payload ? 10 : 1);
             payload_len++) {
            struct sw_packet packet = full((uint8_t)number, payload_len), decoded;
            packet.opcode = opcode;
            size_t len;
            uint8_t *datagram = datagram_of(&packet, &len);
            assert_int_equal(sw_packet_decode(datagram, len, &decoded), SW_PACKET_FAULT_NONE);
            assert_ptr_equal(decoded.opcode, opcode);
            expect_same(&packet, &decoded);
            free(datagram);
        }
    }
}

static void sw_packet_decode__truncated(void **state)
{
    (void)state;
    for (unsigned number = 0; number < 256; number++) {
        if (!sw_opcode_of((uint8_t)number))
            continue;
        struct sw_packet packet = full((uint8_t)number, 0);
        size_t len;
        uint8_t *datagram = datagram_of(&packet, &len);
        for (size_t part = 0; part < len; part++)
            assert_int_equal(decode_first(datagram, part), SW_PACKET_FAULT_TRUNCATED);
        free(datagram);
    }
}

static void sw_packet_decode__no_multiple_of_four(void **state)
{
    (void)state;
    static uint8_t datagram[70000] = {0x04};
    assert_int_equal(decode_first(datagram, 100), SW_PACKET_FAULT_NONE);
    for (size_t len = 101; len < 104; len++)
        assert_int_equal(decode_first(datagram, len), SW_PACKET_FAULT_TRUNCATED);
    assert_int_equal(decode_first(datagram, 65508), SW_PACKET_FAULT_TRUNCATED); /* > IPv4 */
}

static void sw_packet_decode__version(void **state)
{
    (void)state;
    for (uint8_t version = 1; version < 16; version++) {
        const uint8_t datagram[16] = {0x04, version};
        assert_int_equal(decode_first(datagram, sizeof(datagram)), SW_PACKET_FAULT_VERSION);
    }
}

static void sw_packet_decode__unknown_opcode(void **state)
{
    (void)state;
    static const uint8_t numbers[] = {0x15, 0x18, 0x2c, 0x40, 0x63, 0x80, 0x9f, 0xb5, 0xff};
    for (size_t i = 0; i < sizeof(numbers); i++) {
        const uint8_t datagram[64] = {numbers[i]};
        assert_int_equal(decode_first(datagram, sizeof(datagram)), SW_PACKET_FAULT_OPCODE);
    }
}

static void sw_packet_decode__pad(void **state)
{
    (void)state;
    const uint8_t nothing_to_pad[16] = {0x04, 1 << 4};
    assert_int_equal(decode_first(nothing_to_pad, 16), SW_PACKET_FAULT_PAD);
    const uint8_t only_pad[20] = {0x04, 3 << 4};
    assert_int_equal(decode_first(only_pad, 20), SW_PACKET_FAULT_NONE);
    const uint8_t ack[20] = {0x11, 2 << 4};
    assert_int_equal(decode_first(ack, 20), SW_PACKET_FAULT_PAD);
    const uint8_t ack_with_room[24] = {0x11, 2 << 4};
    assert_int_equal(decode_first(ack_with_room, 24), SW_PACKET_FAULT_PAD);
}

static void sw_packet_decode__payload_where_there_is_none(void **state)
{
    (void)state;
    for (unsigned number = 0; number < 256; number++) {
        const struct sw_opcode *opcode = sw_opcode_of((uint8_t)number);
        if (!opcode)
            continue;
        const uint8_t datagram[SW_HEADERS_MAX + 8] = {(uint8_t)number};
        assert_int_equal(decode_first(datagram, opcode->header_len + 8u),
                         opcode->has_payload ? SW_PACKET_FAULT_NONE : SW_PACKET_FAULT_LENGTH);
    }
}

/* Every opcode: the same as if the next packet had been encoded. */
static void sw_packet_step__makes_the_next_packet(void **state)
{
    (void)state;
    for (unsigned number = 0; number < 256; number++) {
        struct sw_packet packet = {.opcode = sw_opcode_of((uint8_t)number),
                                   .bth = {.opcode = (uint8_t)number,
                                           .pkey = 0x8001,
                                           .dest_qpn = 0xabcdef,
                                           .reserved7 = 0x53,
                                           .psn = 0xffffff},
                                   .reth = {0x1fffffff0, 0x11223344, 0x400},
                                   .srq_num = 0x123456,
                                   .flush_type = 1,
                                   .payload_len = 0x400};
        uint8_t stepped[SW_HEADERS_MAX], made[SW_HEADERS_MAX];
        if (!packet.opcode)
            continue;
        size_t len = sw_packet_encode_headers(&packet, stepped, sizeof(stepped));
        sw_packet_step(packet.opcode, stepped, packet.payload_len);
        packet.bth.psn = 0;
        packet.reth.addr += 0x400;
        assert_int_equal(sw_packet_encode_headers(&packet, made, sizeof(made)), len);
        assert_memory_equal(stepped, made, len);
        packet.bth.ack_req = true;
        sw_packet_encode_headers(&packet, made, sizeof(made));
        assert_false(sw_packet_asks(stepped));
        sw_packet_ask(stepped, true);
        assert_true(sw_packet_asks(stepped));
        assert_memory_equal(stepped, made, len);
    }
}

static void sw_packet_fault_name__all(void **state)
{
    (void)state;
    for (int fault = 0; fault < SW_PACKET_FAULT_COUNT; fault++)
        assert_non_null(sw_packet_fault_name((enum sw_packet_fault)fault));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_packet_encode_headers__bth_by_bits),
        cmocka_unit_test(sw_packet_encode_headers__extended),
        cmocka_unit_test(sw_packet_encode_headers__keeps_in_its_room),
        cmocka_unit_test(sw_packet_decode__every_opcode_and_pad),
        cmocka_unit_test(sw_packet_decode__truncated),
        cmocka_unit_test(sw_packet_decode__no_multiple_of_four),
        cmocka_unit_test(sw_packet_decode__version),
        cmocka_unit_test(sw_packet_decode__unknown_opcode),
        cmocka_unit_test(sw_packet_decode__pad),
        cmocka_unit_test(sw_packet_decode__payload_where_there_is_none),
        cmocka_unit_test(sw_packet_step__makes_the_next_packet),
        cmocka_unit_test(sw_packet_fault_name__all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
