/* SPDX-License-Identifier: BSD-2-Clause */
/* Selective repeat at the responder: the pool, and what it does with it. */
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KEPT = RIG_SLOTS / 2 }; /* by one queue pair */

static struct rig rig;

/* With a peer that is known to speak it. */
static void start(void)
{
    rig_start(&rig, NULL, NULL);
    rig.p.peer_selective = true;
}

static void early(uint32_t psn, uint8_t opcode)
{
    struct sw_packet packet = rig_packet(opcode, psn, 8);
    assert_false(rig_admits(&rig, &packet));
}

/* The next kept packet comes out, and is carried out. */
static void comes_out(uint32_t psn)
{
    struct sw_packet packet;
    assert_true(sw_responder_early(&rig.p, &packet));
    assert_int_equal(packet.bth.psn, psn);
    rig_request(&rig, &packet, RIG_ACK);
}

static void nothing_comes_out(void)
{
    struct sw_packet packet;
    assert_false(sw_responder_early(&rig.p, &packet));
}

/* The next packet out is a NAK with a bitmap of one word. */
static void hints(uint32_t psn, uint32_t bits)
{
    rig_responds(&rig, 0x10, psn);
    assert_int_equal(rig.out.packet.aeth.syndrome, RIG_NAK_PSN);
    assert_int_equal(rig.out.packet.payload_len, 4);
    assert_int_equal(rig.out.source, SW_PAYLOAD_BYTES);
    assert_int_equal(rig.out.bytes[0] | rig.out.bytes[1] << 8, bits);
}

static void early__packets_are_kept_and_told_of(void **state)
{
    (void)state;
    start();
    rig_send(&rig, 100);
    rig_acks(&rig, 100, RIG_ACK);
    early(102, 0x04);
    hints(101, 0x1);
    early(104, 0x04);
    hints(101, 0x5);
    assert_int_equal(rig.pool.free_count, RIG_SLOTS - 2);
    rig_send(&rig, 101);
    comes_out(102);
    nothing_comes_out();
    hints(103, 0x1); /* the next gap is told of at once */
    rig_send(&rig, 103);
    comes_out(104);
    nothing_comes_out();
    rig_acks(&rig, 104, RIG_ACK);
    rig_is_silent(&rig);
    assert_int_equal(rig.p.msn, 5);
    assert_int_equal(rig.pool.free_count, RIG_SLOTS);
}

static void early__payloads_are_copies(void **state)
{
    (void)state;
    start();
    uint8_t bytes[8] = "abcdefg";
    struct sw_packet packet = rig_packet(0x04, 101, 8), out;
    packet.payload = bytes;
    assert_false(rig_admits(&rig, &packet));
    memset(bytes, 0, sizeof(bytes));
    rig_send(&rig, 100);
    assert_true(sw_responder_early(&rig.p, &out));
    assert_memory_equal(out.payload, "abcdefg", 8);
    sw_responder_release(&rig.p);
    assert_int_equal(rig.pool.free_count, RIG_SLOTS);
}

static void early__payloads_that_can_be_held_stay_where_they_are(void **state)
{
    (void)state;
    static uint8_t batch[2][SW_EARLY_HOLD_MIN];
    struct sw_hold hold = {.users = 0};
    start();
    struct sw_packet packet = rig_packet(0x04, 101, SW_EARLY_HOLD_MIN), out;
    packet.hold = &hold;
    packet.payload = batch[0];
    assert_false(rig_admits(&rig, &packet));
    packet.bth.psn = 102;
    packet.payload = batch[1];
    assert_false(rig_admits(&rig, &packet));
    packet = rig_packet(0x04, 104, 8); /* short: a copy */
    packet.hold = &hold;
    assert_false(rig_admits(&rig, &packet));
    assert_int_equal(hold.users, 2);
    rig_send(&rig, 100);
    assert_true(sw_responder_early(&rig.p, &out));
    assert_ptr_equal(out.payload, batch[0]);
    assert_int_equal(hold.users, 2); /* until it is done with */
    rig_request(&rig, &out, RIG_ACK);
    assert_true(sw_responder_early(&rig.p, &out));
    assert_ptr_equal(out.payload, batch[1]);
    rig_request(&rig, &out, RIG_ACK);
    nothing_comes_out();
    assert_int_equal(hold.users, 0);
    sw_responder_release(&rig.p);
    assert_int_equal(rig.pool.free_count, RIG_SLOTS);
}

static void early__release_gives_holds_back(void **state)
{
    (void)state;
    struct sw_hold hold = {.users = 3}; /* others' */
    start();
    struct sw_packet packet = rig_packet(0x04, 101, RIG_MTU);
    packet.hold = &hold;
    assert_false(rig_admits(&rig, &packet));
    assert_false(rig_admits(&rig, &packet)); /* twice the same */
    assert_int_equal(hold.users, 4);
    sw_responder_release(&rig.p);
    assert_int_equal(hold.users, 3);
}

/* Four WRITE Onlys as one batch has them, the third of which is as `change` has it; then the one
 * before them. Returns how many are taken at once. */
static uint32_t pieces_with(void (*change)(struct sw_packet *))
{
    static uint8_t batch[8 * 2000];
    static struct sw_hold hold;
    start();
    for (uint32_t i = 0; i < 4; i++) {
        struct sw_packet packet = rig_packet(0x0a, 101 + i, RIG_MTU);
        packet.bth.ack_req = false;
        packet.hold = &hold;
        packet.payload = batch + i * sw_packet_len(packet.opcode, RIG_MTU);
        packet.reth.addr = 0x1000 + i * RIG_MTU;
        if (i == 2)
            change(&packet);
        assert_false(rig_admits(&rig, &packet));
    }
    rig_send(&rig, 100);
    const bool are_run = sw_responder_admit_early_run(&rig.p, &rig.demand);
    sw_responder_release(&rig.p);
    assert_int_equal(hold.users, 0);
    return are_run ? rig.demand.pieces : 0;
}

static void nothing(struct sw_packet *packet)
{
    (void)packet;
}
static void the_key(struct sw_packet *packet)
{
    packet->reth.rkey++;
}
static void the_address(struct sw_packet *packet)
{
    packet->reth.addr++;
}
static void the_length(struct sw_packet *packet)
{
    packet->payload_len = packet->reth.len_bytes = RIG_MTU - 4;
}
static void the_place(struct sw_packet *packet)
{
    packet->payload += 2 * RIG_MTU;
}
static void the_batch(struct sw_packet *packet)
{
    static struct sw_hold other;
    packet->hold = &other;
}
static void not_held(struct sw_packet *packet)
{
    packet->hold = NULL;
}
static void the_kind(struct sw_packet *packet)
{
    *packet = rig_packet(0x04, packet->bth.psn, RIG_MTU);
}
static void asks(struct sw_packet *packet)
{
    packet->bth.ack_req = true;
}

static void early__a_run_ends_where_packets_differ(void **state)
{
    (void)state;
    void (*const changes[])(struct sw_packet *) = {the_key,   the_address, the_length, the_place,
                                                   the_batch, not_held,    the_kind};
    assert_int_equal(pieces_with(nothing), 4);
    assert_int_equal(pieces_with(asks), 4);
    assert_true(rig.demand.ack_req);
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++)
        assert_int_equal(pieces_with(changes[i]), 2);
}

static void early__nothing_is_kept_for_plain_peers(void **state)
{
    (void)state;
    rig_start(&rig, NULL, NULL);
    struct sw_packet packet = rig_packet(0x04, 101, 8);
    packet.bth.reserved7 = 0;
    assert_false(rig_admits(&rig, &packet));
    rig_acks(&rig, 100, RIG_NAK_PSN); /* without a payload */
    assert_int_equal(rig.pool.free_count, RIG_SLOTS);
    packet.bth.psn = 102;
    assert_false(rig_admits(&rig, &packet));
    rig_is_silent(&rig);
}

/* A queue pair whose peer sends what is far ahead leaves others what they need. */
static void early__one_holds_no_more_than_it_leaves(void **state)
{
    (void)state;
    static struct sw_early others[RIG_SLOTS];
    const struct sw_packet packet = rig_packet(0x04, 0, 8);
    start();
    for (uint32_t psn = 101; psn < 101 + 4 * RIG_SLOTS; psn++)
        early(psn, 0x04);
    assert_int_equal(rig.p.early.count, KEPT);
    for (uint32_t i = 0; i < 3; i++) { /* 4, 2, 1 */
        uint32_t kept = 0;
        sw_early_init(&others[i], &rig.pool);
        while (sw_early_keep(&others[i], 0, kept, &packet))
            kept++;
        assert_int_equal(kept, KEPT >> (i + 1));
    }
    assert_int_equal(rig.pool.free_count, 1);
    for (uint32_t i = 0; i < 3; i++)
        sw_early_clear(&others[i]);
    sw_responder_release(&rig.p);
    assert_int_equal(rig.pool.free_count, RIG_SLOTS);
}

static void early__without_a_slot_drops(void **state)
{
    (void)state;
    start();
    for (uint32_t psn = 101; psn < 101 + 2 * KEPT; psn++)
        early(psn, 0x04);
    hints(100, 0xff);
    assert_int_equal(rig.pool.free_count, RIG_SLOTS - KEPT);
    rig_send(&rig, 100);
    for (uint32_t psn = 101; psn < 101 + KEPT; psn++)
        comes_out(psn);
    nothing_comes_out();
    rig_acks(&rig, 101 + KEPT, RIG_NAK_PSN); /* where the dropped ones begin */
    assert_int_equal(rig.pool.free_count, RIG_SLOTS);
    for (uint32_t psn = 101 + KEPT; psn < 101 + 2 * KEPT; psn++) {
        rig_send(&rig, psn);
        nothing_comes_out();
    }
    rig_acks(&rig, 100 + 2 * KEPT, RIG_ACK);
}

static void early__a_copy_takes_no_second_slot(void **state)
{
    (void)state;
    start();
    early(102, 0x04);
    early(102, 0x04);
    assert_int_equal(rig.pool.free_count, RIG_SLOTS - 1);
    sw_responder_release(&rig.p);
}

static void early__beyond_the_bitmap_is_dropped(void **state)
{
    (void)state;
    start();
    early(100 + SW_FLIGHT_PACKETS, 0x04);
    assert_int_equal(rig.pool.free_count, RIG_SLOTS);
    early(100 + SW_FLIGHT_PACKETS - 1, 0x04);
    assert_int_equal(rig.pool.free_count, RIG_SLOTS - 1);
    rig_responds(&rig, 0x10, 100);
    assert_int_equal(rig.out.packet.payload_len, SW_EMISSION_BYTES);
    assert_int_equal(rig.out.bytes[SW_EMISSION_BYTES - 1], 0x40);
    sw_responder_release(&rig.p);
}

static void early__what_a_read_covers_is_given_back(void **state)
{
    (void)state;
    start();
    early(102, 0x04); /* a PSN that the READ's responses turn out to have */
    struct sw_packet read = rig_packet(0x0c, 100, 0);
    read.reth.len_bytes = 4 * RIG_MTU;
    rig_request(&rig, &read, RIG_ACK);
    assert_int_equal(rig.pool.free_count, RIG_SLOTS);
    nothing_comes_out();
}

static void early__rnr_of_a_kept_packet_gives_it_back(void **state)
{
    (void)state;
    start();
    early(101, 0x04);
    rig_send(&rig, 100);
    struct sw_packet packet;
    assert_true(sw_responder_early(&rig.p, &packet));
    rig_request(&rig, &packet, 0x20);
    nothing_comes_out();
    assert_int_equal(rig.pool.free_count, RIG_SLOTS);
    rig_acks(&rig, 101, 0x20 | 12);
    rig_send(&rig, 101);
    rig_acks(&rig, 101, RIG_ACK);
}

static void early__a_dead_responder_gives_all_back(void **state)
{
    (void)state;
    start();
    early(102, 0x04);
    early(103, 0x04);
    struct sw_packet packet = rig_packet(0x04, 100, 8);
    rig_request(&rig, &packet, RIG_NAK_INVALID);
    nothing_comes_out();
    assert_int_equal(rig.pool.free_count, RIG_SLOTS);
    rig_acks(&rig, 100, RIG_NAK_INVALID);
}

/* A FLUSH at 100 that takes its time: packets come meanwhile, then it is done. */
static void begin_flush(void)
{
    struct sw_packet packet = rig_packet(0x1c, 100, 0);
    assert_true(rig_admits(&rig, &packet));
}

static void comes_behind(uint32_t psn)
{
    const struct sw_packet packet = rig_packet(0x04, psn, 8);
    sw_responder_keep_behind(&rig.p, &packet);
}

static void end_flush(void)
{
    const struct sw_outcome outcome = {.syndrome = RIG_ACK};
    sw_responder_conclude(&rig.p, &rig.demand, &outcome);
}

static void early__what_comes_behind_a_demand_waits_for_it(void **state)
{
    (void)state;
    start();
    begin_flush();
    comes_behind(101);
    comes_behind(103);
    comes_behind(101); /* twice */
    comes_behind(99);
    rig_is_silent(&rig); /* no gap: 100 is there */
    comes_behind(100);   /* the FLUSH again: the peer hears that somebody is there */
    rig_acks(&rig, 99, RIG_ACK);
    rig_is_silent(&rig);
    assert_int_equal(rig.pool.free_count, RIG_SLOTS - 2);
    end_flush();
    comes_out(101);
    nothing_comes_out();
    rig_responds(&rig, 0x10, 100);
    hints(102, 0x1); /* this one is missing */
}

static void early__a_plain_peer_need_not_send_again_either(void **state)
{
    (void)state;
    rig_start(&rig, NULL, NULL);
    begin_flush();
    rig.p.peer_selective = false; /* the test's packets have its mark */
    comes_behind(101);
    comes_behind(100);
    rig_is_silent(&rig);
    end_flush();
    comes_out(101);
    nothing_comes_out();
    assert_int_equal(rig.pool.free_count, RIG_SLOTS);
}

static void early__without_a_slot_it_is_asked_for_again(void **state)
{
    (void)state;
    start();
    begin_flush();
    for (uint32_t i = 1; i <= KEPT + 1; i++)
        comes_behind(100 + i);
    rig_is_silent(&rig);
    end_flush();
    for (uint32_t i = 1; i <= KEPT; i++)
        comes_out(100 + i);
    nothing_comes_out();
    rig_responds(&rig, 0x10, 100);
    rig_acks(&rig, 101 + KEPT, RIG_NAK_PSN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(early__what_comes_behind_a_demand_waits_for_it),
        cmocka_unit_test(early__a_plain_peer_need_not_send_again_either),
        cmocka_unit_test(early__without_a_slot_it_is_asked_for_again),
        cmocka_unit_test(early__packets_are_kept_and_told_of),
        cmocka_unit_test(early__payloads_are_copies),
        cmocka_unit_test(early__payloads_that_can_be_held_stay_where_they_are),
        cmocka_unit_test(early__release_gives_holds_back),
        cmocka_unit_test(early__a_run_ends_where_packets_differ),
        cmocka_unit_test(early__nothing_is_kept_for_plain_peers),
        cmocka_unit_test(early__one_holds_no_more_than_it_leaves),
        cmocka_unit_test(early__without_a_slot_drops),
        cmocka_unit_test(early__a_copy_takes_no_second_slot),
        cmocka_unit_test(early__beyond_the_bitmap_is_dropped),
        cmocka_unit_test(early__what_a_read_covers_is_given_back),
        cmocka_unit_test(early__rnr_of_a_kept_packet_gives_it_back),
        cmocka_unit_test(early__a_dead_responder_gives_all_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
