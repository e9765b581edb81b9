/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/ddp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sw_ddp_segment segment_of(uint8_t kind)
{
    return (struct sw_ddp_segment){.opcode = sw_rdmap_opcode_of(kind),
                                   .last = true,
                                   .stag = 0x01020304,
                                   .to = 0x1112131415161718,
                                   .msn = 0x21222324,
                                   .mo = 0x31323334};
}

/* A whole ULPDU of this kind in an allocation of its own. */
static uint8_t *ulpdu_of(uint8_t kind, uint32_t *len)
{
    const struct sw_ddp_segment segment = segment_of(kind);
    *len = sw_ddp_header_len(segment.opcode) + segment.opcode->body_len;
    uint8_t *ulpdu = calloc(1, *len);
    assert_non_null(ulpdu);
    assert_int_equal(sw_ddp_encode(&segment, ulpdu), sw_ddp_header_len(segment.opcode));
    return ulpdu;
}

static void sw_ddp_encode__lays_out_both_headers(void **state)
{
    (void)state;
    uint8_t bytes[SW_DDP_HEADER_MAX];
    struct sw_ddp_segment segment = segment_of(SW_RDMAP_READ_RESPONSE);
    assert_int_equal(sw_ddp_encode(&segment, bytes), 14);
    assert_memory_equal(bytes, "\xc1\x42\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18", 14);
    segment = segment_of(SW_RDMAP_SEND_SE_INV);
    segment.last = false;
    assert_int_equal(sw_ddp_encode(&segment, bytes), 18);
    assert_memory_equal(
        bytes, "\x01\x46\x01\x02\x03\x04\x00\x00\x00\x00\x21\x22\x23\x24\x31\x32\x33\x34", 18);
}

static void sw_ddp_decode__gives_back_each_opcode(void **state)
{
    (void)state;
    static const uint8_t queues[] = {0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 1, 3, 1};
    for (uint8_t kind = 0; kind < SW_RDMAP_KINDS; kind++) {
        uint32_t len;
        uint8_t *ulpdu = ulpdu_of(kind, &len);
        struct sw_ddp_segment again, meant = segment_of(kind);
        assert_int_equal(sw_ddp_check(ulpdu, len), SW_DDP_FAULT_NONE);
        sw_ddp_decode(ulpdu, len, &again);
        assert_ptr_equal(again.opcode, meant.opcode);
        assert_int_equal(again.opcode->number, kind);
        assert_true(again.last);
        assert_int_equal(again.stag, meant.stag);
        assert_int_equal(again.payload_len, meant.opcode->body_len);
        if (meant.opcode->is_tagged) {
            assert_int_equal(again.to, meant.to);
        } else {
            assert_int_equal(again.queue, queues[kind]);
            assert_int_equal(again.msn, meant.msn);
            assert_int_equal(again.mo, meant.mo);
        }
        free(ulpdu);
    }
}

static void sw_ddp_check__refuses_what_is_shorter_than_its_header(void **state)
{
    (void)state;
    for (uint8_t kind = 0; kind < SW_RDMAP_KINDS; kind++) {
        uint32_t len;
        uint8_t *ulpdu = ulpdu_of(kind, &len);
        const uint32_t header_len = sw_ddp_header_len(sw_rdmap_opcode_of(kind));
        for (uint32_t there = 0; there < header_len; there++)
            assert_int_equal(sw_ddp_check(ulpdu, there), SW_DDP_FAULT_SHORT);
        free(ulpdu);
    }
}

static enum sw_ddp_fault check_changed(uint8_t kind, uint32_t at, uint8_t value)
{
    uint32_t len;
    uint8_t *ulpdu = ulpdu_of(kind, &len);
    ulpdu[at] = value;
    const enum sw_ddp_fault fault = sw_ddp_check(ulpdu, len);
    free(ulpdu);
    return fault;
}

static void sw_ddp_check__names_each_fault(void **state)
{
    (void)state;
    assert_int_equal(check_changed(SW_RDMAP_WRITE, 0, 0xc2), SW_DDP_FAULT_VERSION);
    assert_int_equal(check_changed(SW_RDMAP_SEND, 0, 0x42), SW_DDP_FAULT_VERSION_QUEUE);
    assert_int_equal(check_changed(SW_RDMAP_SEND, 9, 4), SW_DDP_FAULT_QUEUE);
    assert_int_equal(check_changed(SW_RDMAP_SEND, 6, 1), SW_DDP_FAULT_QUEUE);
    assert_int_equal(check_changed(SW_RDMAP_SEND, 1, 0x83), SW_DDP_FAULT_RDMAP_VERSION);
    assert_int_equal(check_changed(SW_RDMAP_SEND, 1, 0x4d), SW_DDP_FAULT_OPCODE);
    assert_int_equal(check_changed(SW_RDMAP_SEND, 1, 0x40), SW_DDP_FAULT_OPCODE); /* a WRITE */
    assert_int_equal(check_changed(SW_RDMAP_WRITE, 1, 0x43), SW_DDP_FAULT_OPCODE);
    assert_int_equal(check_changed(SW_RDMAP_SEND, 9, 1), SW_DDP_FAULT_OPCODE); /* of queue 0 */
    assert_int_equal(check_changed(SW_RDMAP_READ_REQUEST, 0, 0x01), SW_DDP_FAULT_LENGTH);
    /* Reserved bits are as they come. */
    assert_int_equal(check_changed(SW_RDMAP_SEND, 0, 0x7d), SW_DDP_FAULT_NONE);
    assert_int_equal(check_changed(SW_RDMAP_SEND, 1, 0x73), SW_DDP_FAULT_NONE);
}

static void sw_ddp_check__wants_bodies_of_their_length(void **state)
{
    (void)state;
    static const uint8_t lens[SW_RDMAP_KINDS] = {
        [SW_RDMAP_READ_REQUEST] = 28,    [SW_RDMAP_IMMEDIATE] = 8,
        [SW_RDMAP_IMMEDIATE_SE] = 8,     [SW_RDMAP_ATOMIC_REQUEST] = 52,
        [SW_RDMAP_ATOMIC_RESPONSE] = 12, [SW_RDMAP_FLUSH] = 24};
    for (uint8_t kind = 0; kind < SW_RDMAP_KINDS; kind++) {
        assert_int_equal(sw_rdmap_opcode_of(kind)->body_len, lens[kind]);
        if (!lens[kind])
            continue;
        uint32_t len;
        uint8_t *ulpdu = ulpdu_of(kind, &len);
        assert_int_equal(sw_ddp_check(ulpdu, len - 1), SW_DDP_FAULT_LENGTH);
        ulpdu = realloc(ulpdu, len + 1);
        assert_non_null(ulpdu);
        assert_int_equal(sw_ddp_check(ulpdu, len + 1), SW_DDP_FAULT_LENGTH);
        free(ulpdu);
    }
}

static void sw_rdmap_bodies__go_there_and_back(void **state)
{
    (void)state;
    uint8_t body[SW_RDMAP_ATOMIC_REQUEST_BYTES];
    const struct sw_rdmap_read read = {0x01020304, 0x05060708, 0x090a0b0c, 0x1112131415161718,
                                       0x2122232425262728};
    struct sw_rdmap_read read_again;
    sw_rdmap_read_encode(&read, body);
    assert_memory_equal(body,
                        "\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18\x05\x06\x07\x08"
                        "\x09\x0a\x0b\x0c\x21\x22\x23\x24\x25\x26\x27\x28",
                        28);
    sw_rdmap_read_decode(body, &read_again);
    assert_int_equal(read_again.sink_stag, read.sink_stag);
    assert_int_equal(read_again.sink_to, read.sink_to);
    assert_int_equal(read_again.len_bytes, read.len_bytes);
    assert_int_equal(read_again.source_stag, read.source_stag);
    assert_int_equal(read_again.source_to, read.source_to);

    const struct sw_rdmap_atomic atomic = {.kind = SW_RDMAP_CMP_SWAP,
                                           .id = 0x01020304,
                                           .stag = 0x05060708,
                                           .to = 0x1112131415161718,
                                           .data = 0x2122232425262728,
                                           .data_mask = 0x3132333435363738,
                                           .compare = 0x4142434445464748,
                                           .compare_mask = 0x5152535455565758};
    struct sw_rdmap_atomic atomic_again;
    sw_rdmap_atomic_encode(&atomic, body);
    assert_memory_equal(body, "\x00\x00\x00\x02\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12", 14);
    assert_memory_equal(body + 44, "\x51\x52\x53\x54\x55\x56\x57\x58", 8);
    sw_rdmap_atomic_decode(body, &atomic_again);
    assert_int_equal(atomic_again.kind, atomic.kind);
    assert_int_equal(atomic_again.data_mask, atomic.data_mask);
    assert_int_equal(atomic_again.compare, atomic.compare);

    const struct sw_rdmap_original original = {0x01020304, 0x1112131415161718};
    struct sw_rdmap_original original_again;
    sw_rdmap_original_encode(&original, body);
    assert_memory_equal(body, "\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18", 12);
    sw_rdmap_original_decode(body, &original_again);
    assert_int_equal(original_again.value, original.value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_ddp_encode__lays_out_both_headers),
        cmocka_unit_test(sw_ddp_decode__gives_back_each_opcode),
        cmocka_unit_test(sw_ddp_check__refuses_what_is_shorter_than_its_header),
        cmocka_unit_test(sw_ddp_check__names_each_fault),
        cmocka_unit_test(sw_ddp_check__wants_bodies_of_their_length),
        cmocka_unit_test(sw_rdmap_bodies__go_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
