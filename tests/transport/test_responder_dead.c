/* SPDX-License-Identifier: BSD-2-Clause */
/* A responder that has refused a request, or that its program has ended: what it still answers. */
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void responder__a_dead_one_repeats_its_nak(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet packet = rig_packet(0x0a, 100, 8);
    rig_request(&rig, &packet, RIG_NAK_ACCESS);
    rig_acks(&rig, 100, RIG_NAK_ACCESS);
    rig_is_silent(&rig);
    assert_false(rig_admits(&rig, &packet)); /* the NAK was lost, it comes again */
    rig_acks(&rig, 100, RIG_NAK_ACCESS);
}

/* A READ at 100, an atomic at 102, a FLUSH at 103, all answered, and a WRITE that is refused. */
static void start_refused(struct rig *rig)
{
    struct sw_packet read = rig_packet(0x0c, 100, 0), add = rig_packet(0x14, 102, 0),
                     flush = rig_packet(0x1c, 103, 0), bad = rig_packet(0x0a, 104, 8);
    read.reth.len_bytes = 2 * RIG_MTU;
    rig_start_responder(rig, true);
    rig->p.config.max_dest_rd_atomic = 4;
    rig_request(rig, &read, RIG_ACK);
    rig_request(rig, &add, RIG_ACK);
    rig_request(rig, &flush, RIG_ACK);
    rig_request(rig, &bad, RIG_NAK_ACCESS);
    rig_responds(rig, 0x0d, 100);
    rig_responds(rig, 0x0f, 101);
    rig_responds(rig, 0x12, 102);
    rig_responds(rig, 0x10, 103);
}

static void ask_again_for_the_read(struct rig *rig)
{
    struct sw_packet rest = rig_packet(0x0c, 101, 0);
    rest.reth = (struct sw_reth){.addr = 0x1000 + RIG_MTU, .rkey = 7, .len_bytes = RIG_MTU};
    rig_request(rig, &rest, RIG_ACK);
}

static void responder__a_dead_one_answers_again_what_it_did(void **state)
{
    (void)state;
    static struct rig rig;
    start_refused(&rig);
    rig_acks(&rig, 104, RIG_NAK_ACCESS);
    ask_again_for_the_read(&rig);
    assert_true(rig.demand.duplicate && rig.demand.kind == SW_DEMAND_READ);
    rig_responds(&rig, 0x10, 101);
    assert_true(rig.out.source == SW_PAYLOAD_MEMORY && rig.out.addr == 0x1000 + RIG_MTU);
    rig_acks(&rig, 104, RIG_NAK_ACCESS);
    struct sw_packet add = rig_packet(0x14, 102, 0), flush = rig_packet(0x1c, 103, 0);
    assert_false(rig_admits(&rig, &add)); /* not executed */
    rig_responds(&rig, 0x12, 102);
    assert_true(rig.out.packet.original == 0x77);
    rig_acks(&rig, 104, RIG_NAK_ACCESS);
    assert_false(rig_admits(&rig, &flush));
    rig_responds(&rig, 0x10, 103);
    assert_int_equal(rig.out.source, SW_PAYLOAD_NONE);
    rig_acks(&rig, 104, RIG_NAK_ACCESS);
    rig_is_silent(&rig);
}

static void responder__a_dead_one_executes_nothing(void **state)
{
    (void)state;
    static struct rig rig;
    static const uint8_t opcodes[] = {0x04, 0x0a, 0x0c, 0x13, 0x14, 0x1c, 0x1d};
    start_refused(&rig);
    rig_acks(&rig, 104, RIG_NAK_ACCESS);
    for (size_t i = 0; i < sizeof(opcodes); i++) {
        for (uint32_t psn = 104; psn < 107; psn++) {
            struct sw_packet packet = rig_packet(opcodes[i], psn, 8);
            assert_false(rig_admits(&rig, &packet));
            rig_acks(&rig, 104, RIG_NAK_ACCESS);
            rig_is_silent(&rig);
        }
    }
    struct sw_packet write = rig_packet(0x0a, 99, 8); /* implied by the NAK */
    assert_false(rig_admits(&rig, &write));
    rig_acks(&rig, 104, RIG_NAK_ACCESS);
    struct sw_packet beyond = rig_packet(0x0c, 103, 0);
    beyond.reth.len_bytes = 2 * RIG_MTU;
    assert_false(rig_admits(&rig, &beyond));
    rig_is_silent(&rig);
}

/* Or a peer that asks again and again would keep the queue pair from its end. */
static void responder__a_dead_one_says_its_nak_first(void **state)
{
    (void)state;
    static struct rig rig;
    start_refused(&rig);
    struct sw_packet read = rig_packet(0x0c, 100, 0);
    read.reth.len_bytes = 2 * RIG_MTU;
    assert_false(rig_admits(&rig, &read));
    rig_acks(&rig, 104, RIG_NAK_ACCESS);
    rig_is_silent(&rig);
    ask_again_for_the_read(&rig);
    rig_responds(&rig, 0x10, 101);
}

static void responder__memory_that_vanished_under_a_dead_one(void **state)
{
    (void)state;
    static struct rig rig;
    start_refused(&rig);
    rig_acks(&rig, 104, RIG_NAK_ACCESS);
    ask_again_for_the_read(&rig);
    rig_responds(&rig, 0x10, 101);
    assert_false(sw_responder_unreadable(&rig.p, RIG_NAK_ACCESS, &rig.out));
    assert_int_equal(rig.out.packet.bth.psn, 101);
    assert_int_equal(rig.out.packet.aeth.syndrome, RIG_NAK_ACCESS);
    assert_int_equal(rig.out.source, SW_PAYLOAD_NONE);
    rig_acks(&rig, 104, RIG_NAK_ACCESS); /* the first refusal is still of 104 */
    rig_is_silent(&rig);
}

static void responder__outlives_its_connection_for_a_time(void **state)
{
    (void)state;
    static struct rig rig;
    start_refused(&rig);
    static struct sw_responder remains;
    remains = rig.p; /* its NAK is still to be said */
    sw_responder_release(&rig.p);
    assert_true(sw_responder_outlive(&remains));
    rig.p = remains;
    ask_again_for_the_read(&rig);
    rig_responds(&rig, 0x10, 101);
    rig_acks(&rig, 104, RIG_NAK_ACCESS);
    sw_responder_forget(&rig.p);
    struct sw_packet read = rig_packet(0x0c, 100, 0), add = rig_packet(0x14, 102, 0);
    assert_false(rig_admits(&rig, &read));
    rig_acks(&rig, 104, RIG_NAK_ACCESS);
    assert_false(rig_admits(&rig, &add));
    rig_acks(&rig, 104, RIG_NAK_ACCESS);
    rig_is_silent(&rig);
}

static void responder__ended_by_its_program_it_only_acknowledges_again(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet send = rig_packet(0x04, 100, 5), read = rig_packet(0x0c, 101, 0),
                     next = rig_packet(0x04, 102, 5);
    read.reth.len_bytes = 10;
    rig_request(&rig, &send, RIG_ACK);
    rig_acks(&rig, 100, RIG_ACK);
    rig_request(&rig, &read, RIG_ACK);
    rig_responds(&rig, 0x10, 101);
    assert_true(sw_responder_outlive(&rig.p));
    assert_false(rig_admits(&rig, &send)); /* its ACK may be lost */
    rig_acks(&rig, 101, RIG_ACK);
    assert_false(rig_admits(&rig, &read)); /* the memory is the program's again */
    assert_false(rig_admits(&rig, &next));
    rig_is_silent(&rig);
    sw_responder_forget(&rig.p);
    assert_false(rig_admits(&rig, &send));
    rig_is_silent(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(responder__a_dead_one_repeats_its_nak),
        cmocka_unit_test(responder__a_dead_one_answers_again_what_it_did),
        cmocka_unit_test(responder__a_dead_one_executes_nothing),
        cmocka_unit_test(responder__a_dead_one_says_its_nak_first),
        cmocka_unit_test(responder__memory_that_vanished_under_a_dead_one),
        cmocka_unit_test(responder__outlives_its_connection_for_a_time),
        cmocka_unit_test(responder__ended_by_its_program_it_only_acknowledges_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
