/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/bytes.h"
#include "wire/psn.h"

enum { RC_SEND_MIDDLE = 0x01, RC_WRITE_MIDDLE = 0x07, RC_WRITE_ONLY = 0x0a };
enum { XRC_SEND_MIDDLE = 0xa1, XRC_WRITE_MIDDLE = 0xa7, XRC_WRITE_ONLY = 0xaa };
enum { LEN = 1024, BYTES_MAX = SW_HEADERS_MAX + LEN + SW_TRAILER_MAX };
static const uint8_t runners[] = {RC_SEND_MIDDLE,  RC_WRITE_MIDDLE,  RC_WRITE_ONLY,
                                  XRC_SEND_MIDDLE, XRC_WRITE_MIDDLE, XRC_WRITE_ONLY};
#define RUNNERS (sizeof(runners) / sizeof(*runners))

struct two {
    uint8_t previous[BYTES_MAX], next[BYTES_MAX];
    size_t len;
};

static size_t make(uint8_t to[BYTES_MAX], uint8_t opcode, uint32_t psn, uint64_t addr, uint32_t len)
{
    const struct sw_packet packet = {
        .bth = {.opcode = opcode,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = 0x345678,
                .reserved7 = 0x53,
                .psn = psn},
        .reth = {.addr = addr, .rkey = 0x700, .len_bytes = len},
        .srq_num = 9,
        .payload_len = len,
    };
    memset(to, (int)psn, BYTES_MAX);
    assert_true(sw_packet_encode_headers(&packet, to, BYTES_MAX) > 0);
    return sw_packet_len(sw_opcode_of(opcode), len);
}

static struct two pair_of(uint8_t opcode, uint32_t psn, uint64_t addr, uint32_t len)
{
    struct two two;
    make(two.previous, opcode, psn, addr, len);
    two.len = make(two.next, opcode, sw_psn_add(psn, 1), addr + len, len);
    return two;
}

static bool follows(const struct two *two)
{
    return sw_packet_follows(two->previous, two->next, two->len);
}

static void sw_packet_follows__what_counts_up(void **state)
{
    (void)state;
    static const uint32_t lens[] = {1, 2, 3, 4, 255, LEN};
    for (size_t i = 0; i < RUNNERS; i++)
        for (size_t k = 0; k < sizeof(lens) / sizeof(*lens); k++) {
            struct two two = pair_of(runners[i], 0xfffffe, UINT32_MAX - 1ull, lens[k]);
            assert_true(follows(&two));
            two = pair_of(runners[i], 0xffffff, 0x1000, lens[k]); /* PSN 0 is next */
            assert_true(follows(&two));
            two.next[8] |= 0x80; /* AckReq may end it */
            assert_true(follows(&two));
        }
}

static void sw_packet_follows__only_some_opcodes(void **state)
{
    (void)state;
    for (uint32_t opcode = 0; opcode < 256; opcode++) {
        struct two two = {.len = 0};
        if (sw_opcode_of((uint8_t)opcode)) {
            two = pair_of((uint8_t)opcode, 100, 0x1000, 64);
        } else {
            two = pair_of(RC_SEND_MIDDLE, 100, 0x1000, 64);
            two.previous[0] = two.next[0] = (uint8_t)opcode;
        }
        assert_int_equal(follows(&two), memchr(runners, (int)opcode, RUNNERS) != NULL);
    }
}

/* Each bit of the headers but those of the PSN and AckReq; the RETH's and XRCETH's, too. */
static void sw_packet_follows__no_other_difference(void **state)
{
    (void)state;
    for (size_t i = 0; i < RUNNERS; i++) {
        const uint32_t headers = sw_opcode_of(runners[i])->header_len;
        const struct two good = pair_of(runners[i], 100, 0x1000, 64);
        for (uint32_t bit = 0; bit < 8 * headers; bit++) {
            struct two two = good;
            two.next[bit / 8] ^= (uint8_t)(1 << bit % 8);
            const bool is_ack_req = bit == 8 * 8 + 7;
            assert_int_equal(follows(&two), is_ack_req);
            two = good;
            two.previous[bit / 8] ^= (uint8_t)(1 << bit % 8); /* nothing follows AckReq */
            assert_false(follows(&two));
        }
        struct two two = good;
        two.previous[8] |= 0x80;
        two.next[8] |= 0x80;
        assert_false(follows(&two));
    }
}

static void sw_packet_follows__the_next_psn_alone(void **state)
{
    (void)state;
    static const uint32_t others[] = {99, 100, 102, 0, 0xffffff, 0x800065};
    for (size_t i = 0; i < RUNNERS; i++)
        for (size_t k = 0; k < sizeof(others) / sizeof(*others); k++) {
            struct two two = pair_of(runners[i], 100, 0x1000, 64);
            sw_be24_store(two.next + 9, others[k]);
            assert_false(follows(&two));
        }
}

/* `at`: of the RETH. */
static void length_is_looked_at(uint8_t opcode, size_t at)
{
    for (uint32_t said = 60; said < 72; said++) { /* the same in both */
        struct two two = pair_of(opcode, 100, 0x1000, 64);
        sw_be32_store(two.previous + at + 12, said);
        sw_be32_store(two.next + at + 12, said);
        sw_be64_store(two.next + at, 0x1000 + said);
        assert_int_equal(follows(&two), said == 64);
    }
    for (uint32_t pad = 1; pad < 4; pad++) { /* the payload is shorter than the RETH says */
        struct two two = pair_of(opcode, 100, 0x1000, 64);
        two.previous[1] = two.next[1] = (uint8_t)(two.next[1] | pad << 4);
        assert_false(follows(&two));
    }
    struct two empty = pair_of(opcode, 100, 0x1000, 0);
    assert_false(follows(&empty));
    empty.previous[1] = empty.next[1] = 0x30; /* pad, and nothing that it could be of */
    sw_be32_store(empty.previous + at + 12, UINT32_MAX - 2);
    sw_be32_store(empty.next + at + 12, UINT32_MAX - 2);
    assert_false(follows(&empty));
}

static void sw_packet_follows__the_length_is_the_payloads(void **state)
{
    (void)state;
    length_is_looked_at(RC_WRITE_ONLY, 12);
    length_is_looked_at(XRC_WRITE_ONLY, 16);
}

static void sw_packet_follows__what_is_too_short(void **state)
{
    (void)state;
    for (size_t i = 0; i < RUNNERS; i++) {
        const size_t least = sw_opcode_of(runners[i])->header_len + (size_t)SW_ICRC_BYTES;
        for (size_t len = 0; len < least; len++) {
            const struct two two = pair_of(runners[i], 100, 0x1000, 64);
            uint8_t *copy = malloc(2 * len + 1); /* nothing is read behind it */
            memcpy(copy, two.previous, len);
            memcpy(copy + len, two.next, len);
            assert_false(sw_packet_follows(copy, copy + len, len));
            free(copy);
        }
    }
}

/* The rest of the run says of itself what the packets say. */
static void sw_packet_run_skip__leads_to_the_packets(void **state)
{
    (void)state;
    enum { COUNT = 5, STEP = 100 };
    for (size_t i = 0; i < RUNNERS; i++) {
        static uint8_t bytes[COUNT][BYTES_MAX];
        size_t len = 0;
        for (uint32_t n = 0; n < COUNT; n++)
            len = make(bytes[n], runners[i], sw_psn_add(0xfffffe, n), 0x1000 + n * STEP, STEP);
        bytes[COUNT - 1][8] |= 0x80;
        for (uint32_t skipped = 0; skipped < COUNT; skipped++) {
            struct sw_packet_run run = {.count = COUNT, .stride_bytes = BYTES_MAX, .ack_req = true};
            struct sw_packet packet;
            assert_int_equal(sw_packet_decode(bytes[0], len, &run.first), SW_PACKET_FAULT_NONE);
            assert_int_equal(sw_packet_decode(bytes[skipped], len, &packet), SW_PACKET_FAULT_NONE);
            sw_packet_run_skip(&run, skipped);
            assert_int_equal(run.count, COUNT - skipped);
            assert_int_equal(run.first.bth.psn, packet.bth.psn);
            assert_int_equal(run.first.bth.ack_req, packet.bth.ack_req);
            assert_int_equal(run.first.reth.addr, packet.reth.addr);
            assert_int_equal(run.first.reth.rkey, packet.reth.rkey);
            assert_int_equal(run.first.payload_len, packet.payload_len);
            assert_ptr_equal(run.first.payload, packet.payload);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_packet_follows__what_counts_up),
        cmocka_unit_test(sw_packet_follows__only_some_opcodes),
        cmocka_unit_test(sw_packet_follows__no_other_difference),
        cmocka_unit_test(sw_packet_follows__the_next_psn_alone),
        cmocka_unit_test(sw_packet_follows__the_length_is_the_payloads),
        cmocka_unit_test(sw_packet_follows__what_is_too_short),
        cmocka_unit_test(sw_packet_run_skip__leads_to_the_packets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
