/* SPDX-License-Identifier: BSD-2-Clause */
/* The opcode table against the specification's, written down a second time as text. */
#include "wire/opcode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* IBTA Vol1 table 38 for RC: the extended headers by name, and the bytes before the payload. */
static const struct {
    uint8_t number;
    const char *name;
    uint16_t headers;
    uint8_t header_len;
    char payload; /* + some, - none */
} reliable[] = {
    {0x00, "SEND First", 0, 12, '+'},
    {0x01, "SEND Middle", 0, 12, '+'},
    {0x02, "SEND Last", 0, 12, '+'},
    {0x03, "SEND Last with Immediate", SW_HEADER_IMM, 16, '+'},
    {0x04, "SEND Only", 0, 12, '+'},
    {0x05, "SEND Only with Immediate", SW_HEADER_IMM, 16, '+'},
    {0x06, "RDMA WRITE First", SW_HEADER_RETH, 28, '+'},
    {0x07, "RDMA WRITE Middle", 0, 12, '+'},
    {0x08, "RDMA WRITE Last", 0, 12, '+'},
    {0x09, "RDMA WRITE Last with Immediate", SW_HEADER_IMM, 16, '+'},
    {0x0a, "RDMA WRITE Only", SW_HEADER_RETH, 28, '+'},
    {0x0b, "RDMA WRITE Only with Immediate", SW_HEADER_RETH | SW_HEADER_IMM, 32, '+'},
    {0x0c, "RDMA READ Request", SW_HEADER_RETH, 28, '-'},
    {0x0d, "RDMA READ Response First", SW_HEADER_AETH, 16, '+'},
    {0x0e, "RDMA READ Response Middle", 0, 12, '+'},
    {0x0f, "RDMA READ Response Last", SW_HEADER_AETH, 16, '+'},
    {0x10, "RDMA READ Response Only", SW_HEADER_AETH, 16, '+'},
    {0x11, "Acknowledge", SW_HEADER_AETH, 16, '-'},
    {0x12, "ATOMIC Acknowledge", SW_HEADER_AETH | SW_HEADER_ATOMIC_ACK, 24, '-'},
    {0x13, "CmpSwap", SW_HEADER_ATOMIC, 40, '-'},
    {0x14, "FetchAdd", SW_HEADER_ATOMIC, 40, '-'},
    {0x16, "SEND Last with Invalidate", SW_HEADER_IETH, 16, '+'},
    {0x17, "SEND Only with Invalidate", SW_HEADER_IETH, 16, '+'},
    {0x1c, "FLUSH", SW_HEADER_FETH | SW_HEADER_RETH, 32, '-'},
    {0x1d, "ATOMIC WRITE", SW_HEADER_RETH, 28, '+'},
};
enum { RELIABLE_COUNT = sizeof(reliable) / sizeof(reliable[0]), MESSAGES_COUNT = 12 };

static void expect(uint8_t base, enum sw_service service, const char *service_name, size_t row,
                   uint16_t extra, uint8_t extra_len)
{
    const struct sw_opcode *opcode = sw_opcode_of((uint8_t)(base | reliable[row].number));
    assert_non_null(opcode);
    assert_int_equal(opcode->number, base | reliable[row].number);
    assert_int_equal(opcode->service, service);
    assert_int_equal(strncmp(opcode->name, service_name, strlen(service_name)), 0);
    assert_string_equal(opcode->name + strlen(service_name) + 1, reliable[row].name);
    assert_int_equal(opcode->headers, reliable[row].headers | extra);
    assert_int_equal(opcode->header_len, reliable[row].header_len + extra_len);
    assert_true(opcode->header_len <= SW_HEADERS_MAX);
    assert_int_equal(opcode->has_payload, reliable[row].payload == '+');
}

static void sw_opcode_of__rc_and_uc(void **state)
{
    (void)state;
    for (size_t row = 0; row < RELIABLE_COUNT; row++)
        expect(0x00, SW_SERVICE_RC, "RC", row, 0, 0);
    for (size_t row = 0; row < MESSAGES_COUNT; row++)
        expect(0x20, SW_SERVICE_UC, "UC", row, 0, 0);
}

/* Requests name their SRQ, answers do not (A14.4.1). */
static void sw_opcode_of__xrc(void **state)
{
    (void)state;
    for (size_t row = 0; row < RELIABLE_COUNT; row++) {
        bool is_answer = reliable[row].number >= 0x0d && reliable[row].number <= 0x12;
        expect(0xa0, SW_SERVICE_XRC, "XRC", row, is_answer ? 0 : SW_HEADER_XRCETH,
               is_answer ? 0 : 4);
        assert_int_equal(sw_opcode_of(0xa0 | reliable[row].number)->is_request, !is_answer);
    }
}

static void sw_opcode_of__ud_and_cnp(void **state)
{
    (void)state;
    assert_string_equal(sw_opcode_of(0x64)->name, "UD SEND Only");
    assert_int_equal(sw_opcode_of(0x64)->headers, SW_HEADER_DETH);
    assert_int_equal(sw_opcode_of(0x64)->header_len, 20);
    assert_int_equal(sw_opcode_of(0x65)->headers, SW_HEADER_DETH | SW_HEADER_IMM);
    assert_int_equal(sw_opcode_of(0x65)->header_len, 24);
    assert_int_equal(sw_opcode_of(0x81)->service, SW_SERVICE_CNP);
    assert_int_equal(sw_opcode_of(0x81)->header_len, 28);
    assert_false(sw_opcode_of(0x81)->has_payload);
}

/* Bits 110 and 111 of an opcode are left to manufacturers: IBTA Vol1 9.2.1. */
static void sw_opcode_of__our_own(void **state)
{
    (void)state;
    for (unsigned number = 0; number < 256; number++) {
        const struct sw_opcode *opcode = sw_opcode_of((uint8_t)number);
        const bool is_own = opcode && opcode->headers & SW_HEADER_PIGGYBACK;
        assert_int_equal(is_own, opcode && number >= 0xc0);
        if (!is_own)
            continue;
        const struct sw_opcode *plain = sw_opcode_of((uint8_t)(number - 0xc0));
        assert_int_equal(opcode->service, SW_SERVICE_RC);
        assert_int_equal(opcode->kind, SW_PACKET_SEND);
        assert_int_equal(opcode->position, SW_ONLY);
        assert_int_equal(opcode->headers, plain->headers | SW_HEADER_PIGGYBACK);
        assert_int_equal(opcode->header_len, plain->header_len + SW_PIGGYBACK_BYTES);
        assert_true(opcode->is_request && opcode->has_payload);
    }
}

static void sw_opcode_of__no_others(void **state)
{
    (void)state;
    int known = 0;
    for (unsigned number = 0; number < 256; number++) {
        const struct sw_opcode *opcode = sw_opcode_of((uint8_t)number);
        known += opcode != NULL;
        assert_true(!opcode || opcode->number == number);
    }
    assert_int_equal(known, 2 * RELIABLE_COUNT + MESSAGES_COUNT + 2 + 1 + 3);
    assert_null(sw_opcode_of(0x44)); /* reliable datagram */
    assert_null(sw_opcode_of(0x15));
}

static void sw_opcode_find__is_the_inverse(void **state)
{
    (void)state;
    for (unsigned number = 0; number < 256; number++) {
        const struct sw_opcode *opcode = sw_opcode_of((uint8_t)number);
        if (!opcode)
            continue;
        uint16_t extra = opcode->headers & (SW_HEADER_IMM | SW_HEADER_IETH | SW_HEADER_PIGGYBACK);
        assert_ptr_equal(sw_opcode_find(opcode->service, opcode->kind, opcode->position, extra),
                         opcode);
    }
}

static void sw_opcode_find__refuses_what_is_not_there(void **state)
{
    (void)state;
    assert_null(sw_opcode_find(SW_SERVICE_RC, SW_PACKET_SEND, SW_FIRST, SW_HEADER_IMM));
    assert_null(sw_opcode_find(SW_SERVICE_RC, SW_PACKET_SEND, SW_MIDDLE, SW_HEADER_IETH));
    assert_null(sw_opcode_find(SW_SERVICE_RC, SW_PACKET_WRITE, SW_ONLY, SW_HEADER_IETH));
    assert_null(sw_opcode_find(SW_SERVICE_RC, SW_PACKET_ACK, SW_ONLY, SW_HEADER_IMM));
    assert_null(sw_opcode_find(SW_SERVICE_UC, SW_PACKET_READ_REQUEST, SW_ONLY, 0));
    assert_null(sw_opcode_find(SW_SERVICE_UC, SW_PACKET_SEND, SW_ONLY, SW_HEADER_IETH));
    assert_null(sw_opcode_find(SW_SERVICE_UD, SW_PACKET_SEND, SW_FIRST, 0));
    assert_null(sw_opcode_find(SW_SERVICE_UD, SW_PACKET_WRITE, SW_ONLY, 0));
    assert_null(sw_opcode_find(SW_SERVICE_RC, SW_PACKET_CNP, SW_ONLY, 0));
    assert_null(sw_opcode_find(SW_SERVICE_CNP, SW_PACKET_SEND, SW_ONLY, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_opcode_of__rc_and_uc),
        cmocka_unit_test(sw_opcode_of__xrc),
        cmocka_unit_test(sw_opcode_of__ud_and_cnp),
        cmocka_unit_test(sw_opcode_of__our_own),
        cmocka_unit_test(sw_opcode_of__no_others),
        cmocka_unit_test(sw_opcode_find__is_the_inverse),
        cmocka_unit_test(sw_opcode_find__refuses_what_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
