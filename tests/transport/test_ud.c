/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/ud.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sw_ud ud(void)
{
    return (struct sw_ud){.qpn = 33, .psn = 0xffffff, .mtu_bytes = 1024, .pkey = 0xffff};
}

static void sw_ud_emit__one_packet(void **state)
{
    (void)state;
    struct sw_ud from = ud();
    const struct sw_ud_send send = {
        .dest_qpn = 44, .qkey = 0x11111111, .len_bytes = 1024, .solicited = true};
    struct sw_emission out;
    assert_true(sw_ud_emit(&from, &send, 5, &out));
    assert_int_equal(out.packet.bth.opcode, 0x64);
    assert_int_equal(out.packet.bth.psn, 0xffffff);
    assert_int_equal(out.packet.bth.dest_qpn, 44);
    assert_int_equal(out.packet.deth.qkey, 0x11111111);
    assert_int_equal(out.packet.deth.src_qpn, 33);
    assert_true(out.packet.bth.solicited);
    assert_false(out.packet.bth.ack_req);
    assert_int_equal(out.source, SW_PAYLOAD_REQUEST);
    assert_int_equal(out.position, 5);
    assert_int_equal(out.packet.payload_len, 1024);
    assert_true(sw_ud_emit(&from, &send, 6, &out));
    assert_int_equal(out.packet.bth.psn, 0);
}

static void sw_ud_emit__immediate_and_no_payload(void **state)
{
    (void)state;
    struct sw_ud from = ud();
    const struct sw_ud_send send = {.has_imm = true, .imm_be = 77};
    struct sw_emission out;
    assert_true(sw_ud_emit(&from, &send, 0, &out));
    assert_int_equal(out.packet.bth.opcode, 0x65);
    assert_int_equal(out.packet.imm_be, 77);
    assert_int_equal(out.source, SW_PAYLOAD_NONE);
}

static void sw_ud_emit__longer_than_the_mtu(void **state)
{
    (void)state;
    struct sw_ud from = ud();
    const struct sw_ud_send send = {.len_bytes = 1025};
    struct sw_emission out;
    assert_false(sw_ud_emit(&from, &send, 0, &out));
    assert_int_equal(from.psn, 0xffffff);
}

static void sw_ud_admits__datagrams_that_fit(void **state)
{
    (void)state;
    struct sw_ud at = ud();
    struct sw_packet packet = {.opcode = sw_opcode_of(0x64), .payload_len = 1024};
    assert_true(sw_ud_admits(&at, &packet));
    packet.payload_len = 1025;
    assert_false(sw_ud_admits(&at, &packet));
    packet = (struct sw_packet){.opcode = sw_opcode_of(0x04)};
    assert_false(sw_ud_admits(&at, &packet));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_ud_emit__one_packet),
        cmocka_unit_test(sw_ud_emit__immediate_and_no_payload),
        cmocka_unit_test(sw_ud_emit__longer_than_the_mtu),
        cmocka_unit_test(sw_ud_admits__datagrams_that_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
