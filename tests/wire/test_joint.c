/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/joint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "wire/bytes.h"

enum { SEND_ONLY = 0x04, SEND_WITH_IMM = 0x05, ACKNOWLEDGE = 0x11, QPN = 0x345678, COUNT = 3 };

static const struct {
    uint8_t opcode;
    uint32_t payload_bytes;
} parts[COUNT] = {{ACKNOWLEDGE, 0}, {SEND_ONLY, 13}, {SEND_WITH_IMM, 16}};

struct joint {
    uint8_t bytes[512];
    uint32_t len_bytes;
    uint32_t at[COUNT]; /* where each part's length stands */
};

/* One part, with `n` in each byte of its payload. Returns its length. */
static uint32_t make_part(uint8_t *to, uint32_t n)
{
    const uint32_t payload = parts[n].payload_bytes;
    const struct sw_packet packet = {
        .bth = {.opcode = parts[n].opcode,
                .pkey = SW_PKEY_DEFAULT,
                .solicited = true,
                .mig_req = true,
                .ack_req = true,
                .dest_qpn = QPN,
                .reserved7 = 0x53,
                .psn = 100 + 2 * n},
        .payload_len = payload,
    };
    const size_t header = sw_packet_encode_headers(&packet, to, SW_HEADERS_MAX);
    assert_true(header > 0);
    memset(to + header, (int)n, payload);
    memset(to + header + payload, 0, sw_packet_pad(payload));
    return (uint32_t)header + payload + sw_packet_pad(payload);
}

static struct joint make_joint(void)
{
    struct joint joint = {.len_bytes = SW_BTH_BYTES};
    uint8_t part[128];
    for (uint32_t n = 0; n < COUNT; n++) {
        const uint32_t len = make_part(part, n);
        if (n == 0)
            sw_joint_begin(joint.bytes, part);
        joint.at[n] = joint.len_bytes;
        sw_joint_announce(joint.bytes + joint.len_bytes, len);
        memcpy(joint.bytes + joint.len_bytes + SW_JOINT_EACH_BYTES, part, len);
        joint.len_bytes += SW_JOINT_EACH_BYTES + len;
    }
    joint.len_bytes += SW_ICRC_BYTES;
    return joint;
}

static bool is_sound(const struct joint *joint)
{
    return sw_joint_is_sound(joint->bytes, joint->len_bytes);
}

static void sw_joint_next__gives_what_was_joined(void **state)
{
    (void)state;
    const struct joint joint = make_joint();
    const uint8_t *bytes;
    uint32_t at = 0, len;
    assert_true(sw_joint_is(joint.bytes) && is_sound(&joint));
    for (uint32_t n = 0; n < COUNT; n++) {
        struct sw_packet packet;
        assert_true(sw_joint_next(joint.bytes, joint.len_bytes, &at, &bytes, &len));
        assert_int_equal(sw_packet_decode(bytes, len, &packet), SW_PACKET_FAULT_NONE);
        assert_int_equal(packet.bth.opcode, parts[n].opcode);
        assert_int_equal(packet.bth.psn, 100 + 2 * n);
        assert_true(packet.bth.ack_req && packet.bth.solicited);
        assert_int_equal(packet.payload_len, parts[n].payload_bytes);
        for (uint32_t i = 0; i < packet.payload_len; i++)
            assert_int_equal(packet.payload[i], n);
    }
    assert_false(sw_joint_next(joint.bytes, joint.len_bytes, &at, &bytes, &len));
}

/* Where it goes and whose it is, as of the first; what concerns one packet is that packet's. */
static void sw_joint_begin__takes_what_all_have(void **state)
{
    (void)state;
    uint8_t part[128], bth[SW_BTH_BYTES];
    make_part(part, 1);
    sw_joint_begin(bth, part);
    assert_true(sw_joint_is(bth) && !sw_opcode_of(bth[0]));
    assert_true(sw_joint_is_for(bth, part));
    assert_int_equal(bth[1], 0x40); /* MigReq: neither solicited nor pad */
    assert_memory_equal(bth + 2, part + 2, 6);
    assert_int_equal(bth[8], 0x53); /* without AckReq */
    part[7] ^= 1;
    assert_false(sw_joint_is_for(bth, part));
}

static void sw_joint_is_sound__packets_fill_it(void **state)
{
    (void)state;
    const struct joint good = make_joint();
    for (uint32_t n = 0; n < COUNT; n++) {
        static const int32_t steps[] = {-4, -1, 1, 4, 0x4000};
        for (uint32_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
            struct joint bad = good;
            const int32_t len = sw_be16_load(bad.bytes + bad.at[n]) + steps[i];
            sw_be16_store(bad.bytes + bad.at[n], (uint16_t)len);
            assert_false(is_sound(&bad));
        }
    }
    for (uint32_t len = SW_JOINT_BYTES + 4; len < good.len_bytes; len += 4) {
        struct joint cut = good;
        cut.len_bytes = len;
        assert_int_equal(is_sound(&cut),
                         len == good.at[1] + SW_ICRC_BYTES || len == good.at[2] + SW_ICRC_BYTES);
    }
}

static void sw_joint_is_sound__each_goes_where_it_goes(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < COUNT; n++) {
        struct joint joint = make_joint();
        joint.bytes[joint.at[n] + SW_JOINT_EACH_BYTES + 7] ^= 1; /* another queue pair */
        assert_false(is_sound(&joint));
    }
}

static void sw_joint_is_sound__none_in_another(void **state)
{
    (void)state;
    struct joint joint = make_joint();
    joint.bytes[joint.at[1] + SW_JOINT_EACH_BYTES] = SW_JOINT_OPCODE;
    assert_false(is_sound(&joint));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_joint_next__gives_what_was_joined),
        cmocka_unit_test(sw_joint_begin__takes_what_all_have),
        cmocka_unit_test(sw_joint_is_sound__packets_fill_it),
        cmocka_unit_test(sw_joint_is_sound__each_goes_where_it_goes),
        cmocka_unit_test(sw_joint_is_sound__none_in_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
