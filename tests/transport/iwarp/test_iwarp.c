/* SPDX-License-Identifier: BSD-2-Clause */
/* What the machine of iWARP sends, and how it refuses. What comes is in test_iwarp_admit.c. */
#include "transport/iwarp/iwarp_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/bytes.h"
#include "wire/iwarp/mpa.h"

/* ---- what leaves ---- */

static void sw_iwarp_next__cuts_a_send_into_fpdus(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    const uint32_t room = (sw_fpdu_ulpdu_max(IWARP_FPDU_BYTES) - SW_DDP_UNTAGGED_BYTES) & ~7u;
    iwarp_post(rig, SW_REQUEST_SEND, 2 * room + 5, SW_REQUEST_SOLICITED | SW_REQUEST_INV);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(sw_iwarp_done(&rig->machine), 0);
        iwarp_sends(rig, SW_RDMAP_SEND_SE_INV);
        assert_int_equal(rig->segment.msn, 1);
        assert_int_equal(rig->segment.mo, i * room);
        assert_int_equal(rig->segment.stag, 0x01020304);
        assert_int_equal(rig->segment.last, i == 2);
        assert_int_equal(rig->emission.source, SW_PAYLOAD_REQUEST);
        assert_int_equal(rig->emission.offset, i * room);
    }
    assert_int_equal(sw_iwarp_done(&rig->machine), 1); /* TCP has it all */
    iwarp_post(rig, SW_REQUEST_SEND, 0, 0);
    iwarp_sends(rig, SW_RDMAP_SEND);
    assert_int_equal(rig->segment.msn, 2);
    iwarp_sends_nothing(rig);
}

static void sw_iwarp_next__writes_and_tells_the_immediate(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    const uint32_t room = (sw_fpdu_ulpdu_max(IWARP_FPDU_BYTES) - SW_DDP_TAGGED_BYTES) & ~7u;
    iwarp_post(rig, SW_REQUEST_WRITE, room + 1, SW_REQUEST_IMM);
    iwarp_sends(rig, SW_RDMAP_WRITE);
    assert_int_equal(rig->segment.to, 0x10000);
    assert_false(rig->segment.last);
    iwarp_sends(rig, SW_RDMAP_WRITE);
    assert_int_equal(rig->segment.to, 0x10000 + room);
    assert_int_equal(rig->emission.payload_len, 1);
    assert_true(rig->segment.last);
    assert_int_equal(sw_iwarp_done(&rig->machine), 0);
    iwarp_sends(rig, SW_RDMAP_IMMEDIATE);
    assert_memory_equal(rig->emission.head + 20, "\x00\x00\x00\x00\x04\x03\x02\x01", 8);
    assert_int_equal(sw_iwarp_done(&rig->machine), 1);
    iwarp_post(rig, SW_REQUEST_WRITE, 0, SW_REQUEST_IMM | SW_REQUEST_SOLICITED);
    iwarp_sends(rig, SW_RDMAP_WRITE);
    assert_int_equal(rig->segment.stag, 1); /* never 0 */
    iwarp_sends(rig, SW_RDMAP_IMMEDIATE_SE);
    assert_int_equal(rig->segment.msn, 2);
}

static void sw_iwarp_next__finishes_a_message_before_another(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    iwarp_post(rig, SW_REQUEST_WRITE, 1000, 0);
    iwarp_post(rig, SW_REQUEST_WRITE, 1000, 0);
    iwarp_sends(rig, SW_RDMAP_WRITE); /* the first part */
    uint8_t before = SW_RDMAP_WRITE;
    bool is_whole = false;
    assert_int_equal(iwarp_take_read(rig, 1, 0x3000, 1000), SW_IWARP_DEMAND);
    sw_iwarp_conclude(&rig->machine, &rig->input.demand, &iwarp_good);
    uint32_t turns = 0;
    while (sw_iwarp_next(&rig->machine, &rig->emission)) {
        const uint8_t kind = rig->emission.head[3] & 15;
        assert_true(is_whole || kind == before);
        is_whole = rig->emission.head[2] & 0x40;
        turns += kind != before;
        before = kind;
    }
    assert_int_equal(turns, 2); /* the answer had its turn between both */
}

static void sw_iwarp_next__keeps_to_the_depth_of_reads(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    for (int i = 0; i < IWARP_ORD + 1; i++)
        iwarp_post(rig, SW_REQUEST_READ, 10, 0);
    for (uint32_t i = 1; i <= IWARP_ORD; i++) {
        iwarp_sends(rig, SW_RDMAP_READ_REQUEST);
        assert_int_equal(rig->segment.msn, i);
    }
    iwarp_sends_nothing(rig);
    assert_int_equal(iwarp_take_response(rig, iwarp_token_of(rig, 0), 0, 10, true), SW_IWARP_PLACE);
    assert_int_equal(sw_iwarp_done(&rig->machine), 1);
    iwarp_sends(rig, SW_RDMAP_READ_REQUEST);
}

static void sw_iwarp_next__waits_at_a_fence(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    iwarp_post(rig, SW_REQUEST_READ, 10, 0);
    iwarp_post(rig, SW_REQUEST_SEND, 10, 0);
    iwarp_post(rig, SW_REQUEST_SEND, 10, SW_REQUEST_FENCE);
    iwarp_sends(rig, SW_RDMAP_READ_REQUEST);
    iwarp_sends(rig, SW_RDMAP_SEND); /* which the READ does not hold back */
    iwarp_sends_nothing(rig);
    assert_int_equal(sw_iwarp_done(&rig->machine), 0);
    iwarp_take_response(rig, iwarp_token_of(rig, 0), 0, 10, true);
    assert_int_equal(sw_iwarp_done(&rig->machine), 2);
    iwarp_sends(rig, SW_RDMAP_SEND);
}

static void sw_iwarp_next__begins_with_the_agreed_message(void **state)
{
    (void)state;
    static const struct {
        uint8_t rtr, kind, len;
    } cases[] = {{SW_MPA_RTR_SEND, SW_RDMAP_SEND, 18},
                 {SW_MPA_RTR_WRITE, SW_RDMAP_WRITE, 14},
                 {SW_MPA_RTR_READ, SW_RDMAP_READ_REQUEST, 18 + 28}};
    for (size_t i = 0; i < 3; i++) {
        struct sw_iwarp_config config = iwarp_usual();
        config.rtr = cases[i].rtr;
        struct iwarp_rig *rig = iwarp_rig_with(&config);
        iwarp_post(rig, SW_REQUEST_SEND, 10, 0);
        iwarp_sends(rig, cases[i].kind);
        assert_int_equal(sw_iwarp_ulpdu_len(&rig->emission), cases[i].len); /* it is empty */
        assert_int_equal(rig->machine.done, 0);
        iwarp_sends(rig, SW_RDMAP_SEND);
        assert_int_equal(rig->segment.msn, i == 0 ? 2 : 1);
        if (i == 2) {
            assert_int_equal(iwarp_take_response(rig, 1, 0, 0, true), SW_IWARP_NOTHING);
            assert_false(rig->machine.over);
        }
    }
}

/* Chelsio's NICs drop a connection on it. */
static void sw_iwarp_next__names_no_key_0(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    assert_true(sw_iwarp_post(&rig->machine, &(struct sw_request){.kind = SW_REQUEST_WRITE}));
    iwarp_sends(rig, SW_RDMAP_WRITE);
    assert_int_equal(rig->segment.stag, 1);
    sw_iwarp_nudge(&rig->machine);
    iwarp_sends(rig, SW_RDMAP_WRITE);
    assert_int_equal(rig->segment.stag, 1);
}

static void sw_iwarp_post__knows_what_iwarp_has_not(void **state)
{
    (void)state;
    static const struct sw_request refused[] = {{.kind = SW_REQUEST_FLUSH},
                                                {.kind = SW_REQUEST_ATOMIC_WRITE},
                                                {.kind = SW_REQUEST_SEND, .flags = SW_REQUEST_IMM}};
    struct iwarp_rig *rig = iwarp_rig_of();
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
        assert_false(sw_iwarp_supports(&rig->machine, &refused[i]));
    for (int i = 0; i < IWARP_RING; i++)
        iwarp_post(rig, SW_REQUEST_SEND, 1, 0);
    assert_false(sw_iwarp_post(&rig->machine, &(struct sw_request){.kind = SW_REQUEST_SEND}));
}

static void sw_iwarp_is_local__comes_in_turn(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    iwarp_post(rig, SW_REQUEST_READ, 10, 0);
    iwarp_post(rig, SW_REQUEST_LOCAL, 0, 0);
    iwarp_post(rig, SW_REQUEST_SEND, 1, 0);
    iwarp_sends(rig, SW_RDMAP_READ_REQUEST);
    iwarp_sends_nothing(rig);
    assert_false(sw_iwarp_is_local(&rig->machine));
    iwarp_take_response(rig, iwarp_token_of(rig, 0), 0, 10, true);
    assert_true(sw_iwarp_is_local(&rig->machine));
    sw_iwarp_local_done(&rig->machine);
    assert_int_equal(sw_iwarp_done(&rig->machine), 2);
    iwarp_sends(rig, SW_RDMAP_SEND);
}

/* ---- refusals ---- */

static void sw_iwarp_conclude__tells_why(void **state)
{
    (void)state;
    enum { RNR = 0x20, INVALID = 0x61, ACCESS = 0x62, OPERATIONAL = 0x63 };
    static const struct {
        uint8_t kind; /* enum sw_demand_kind */
        uint8_t syndrome, why;
        uint16_t cause;
    } cases[] = {
        {SW_DEMAND_SEND, RNR, 0, SW_TERMINATE_NO_RECEIVE},
        {SW_DEMAND_SEND, INVALID, 0, SW_TERMINATE_TOO_LONG},
        {SW_DEMAND_SEND, ACCESS, 0, SW_TERMINATE_INVALIDATE},
        {SW_DEMAND_SEND, OPERATIONAL, 0, SW_TERMINATE_LOCAL},
        {SW_DEMAND_WRITE, ACCESS, SW_ACCESS_FAULT_KEY, SW_TERMINATE_STAG},
        {SW_DEMAND_WRITE, ACCESS, SW_ACCESS_FAULT_BOUNDS, SW_TERMINATE_BOUNDS},
        {SW_DEMAND_WRITE, ACCESS, SW_ACCESS_FAULT_OWNER, SW_TERMINATE_OWNER},
        {SW_DEMAND_WRITE, ACCESS, SW_ACCESS_FAULT_RIGHTS, SW_TERMINATE_RIGHTS},
        {SW_DEMAND_WRITE, INVALID, SW_ACCESS_FAULT_RIGHTS, SW_TERMINATE_RIGHTS},
        {SW_DEMAND_READ, ACCESS, SW_ACCESS_FAULT_KEY, SW_TERMINATE_READ_STAG},
        {SW_DEMAND_READ, ACCESS, SW_ACCESS_FAULT_BOUNDS, SW_TERMINATE_READ_BOUNDS},
        {SW_DEMAND_READ, ACCESS, SW_ACCESS_FAULT_OWNER, SW_TERMINATE_READ_OWNER},
        {SW_DEMAND_READ, ACCESS, SW_ACCESS_FAULT_RIGHTS, SW_TERMINATE_RIGHTS},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct iwarp_rig *rig = iwarp_rig_of();
        if (cases[i].kind == SW_DEMAND_SEND)
            iwarp_take_send(rig, SW_RDMAP_SEND, 1, 0, 10, true);
        else if (cases[i].kind == SW_DEMAND_WRITE)
            iwarp_take_write(rig, 0x1000, 10, true);
        else
            iwarp_take_read(rig, 1, 0x1000, 10);
        assert_int_equal(rig->input.demand.kind, cases[i].kind);
        iwarp_conclude(rig, cases[i].syndrome, (enum sw_access_fault)cases[i].why);
        iwarp_terminates(rig, cases[i].cause);
        assert_int_equal(rig->machine.terminate.ddp_len,
                         cases[i].kind == SW_DEMAND_WRITE ? 14 : 18);
    }
}

static void sw_iwarp_nudge__is_an_empty_write_between_messages(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    iwarp_post(rig, SW_REQUEST_SEND, 300, 0);
    iwarp_sends(rig, SW_RDMAP_SEND); /* begun */
    sw_iwarp_nudge(&rig->machine);
    iwarp_sends(rig, SW_RDMAP_SEND);
    assert_true(rig->segment.last);
    iwarp_sends(rig, SW_RDMAP_WRITE);
    assert_true(rig->segment.last);
    assert_int_equal(rig->emission.payload_len, 0);
    iwarp_sends_nothing(rig);
    iwarp_take_write(rig, 0x4000, 0, true); /* it has heard something: nobody sleeps there */
    sw_iwarp_nudge(&rig->machine);
    iwarp_sends_nothing(rig);
}

static void sw_iwarp_release__lets_a_responder_speak_first(void **state)
{
    (void)state;
    for (int rtr = 0; rtr < 2; rtr++) {
        struct sw_iwarp_config config = iwarp_usual();
        config.is_initiator = false;
        config.is_held = true;
        config.rtr = rtr ? SW_MPA_RTR_WRITE : 0;
        struct iwarp_rig *rig = iwarp_rig_with(&config);
        iwarp_post(rig, SW_REQUEST_SEND, 4, 0);
        iwarp_sends_nothing(rig);
        sw_iwarp_release(&rig->machine);
        if (rtr)
            iwarp_sends_nothing(rig);
        else
            iwarp_sends(rig, SW_RDMAP_SEND);
    }
}

static void sw_iwarp_unreadable__ends_a_response(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    iwarp_take_read(rig, 1, 0x3000, 1000);
    sw_iwarp_conclude(&rig->machine, &rig->input.demand, &iwarp_good);
    iwarp_sends(rig, SW_RDMAP_READ_RESPONSE);
    sw_iwarp_unreadable(&rig->machine, SW_ACCESS_FAULT_KEY);
    iwarp_terminates(rig, SW_TERMINATE_READ_STAG);
}

/* So the peer knows that what came before these READs is done, and whose the fault is. */
static void sw_iwarp_refuse__follows_the_answers_to_what_came_before(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    assert_int_equal(iwarp_take_read(rig, 1, 0, 0), SW_IWARP_NOTHING);
    assert_int_equal(iwarp_take_write(rig, 0x4000, 100, true), SW_IWARP_DEMAND);
    iwarp_conclude(rig, 0x62, SW_ACCESS_FAULT_KEY);
    assert_int_equal(iwarp_take_read(rig, 2, 0, 0), SW_IWARP_NOTHING);
    iwarp_sends(rig, SW_RDMAP_READ_RESPONSE);
    iwarp_terminates(rig, SW_TERMINATE_STAG);
}

static void sw_iwarp_refuse__comes_within_a_message(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    iwarp_post(rig, SW_REQUEST_WRITE, 1000, 0);
    iwarp_sends(rig, SW_RDMAP_WRITE);
    assert_int_equal(iwarp_take_read(rig, 1, 0, 0), SW_IWARP_NOTHING);
    sw_iwarp_refuse(&rig->machine, SW_TERMINATE_CRC);
    iwarp_terminates(rig, SW_TERMINATE_CRC);
}

static void sw_iwarp_say_last__says_why_it_ends(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    assert_false(sw_iwarp_say_last(&rig->machine, &rig->emission));
    sw_iwarp_refuse(&rig->machine, SW_TERMINATE_CRC);
    assert_true(sw_iwarp_say_last(&rig->machine, &rig->emission));
    assert_int_equal(sw_be16_load(rig->emission.head + 2 + SW_DDP_UNTAGGED_BYTES),
                     SW_TERMINATE_CRC);
    assert_false(sw_iwarp_say_last(&rig->machine, &rig->emission));
}

static void sw_iwarp_refuse__is_said_once(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    sw_iwarp_refuse(&rig->machine, SW_TERMINATE_CRC);
    sw_iwarp_refuse(&rig->machine, SW_TERMINATE_FRAME);
    iwarp_terminates(rig, SW_TERMINATE_CRC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_iwarp_next__cuts_a_send_into_fpdus),
        cmocka_unit_test(sw_iwarp_next__writes_and_tells_the_immediate),
        cmocka_unit_test(sw_iwarp_next__finishes_a_message_before_another),
        cmocka_unit_test(sw_iwarp_next__keeps_to_the_depth_of_reads),
        cmocka_unit_test(sw_iwarp_next__waits_at_a_fence),
        cmocka_unit_test(sw_iwarp_next__begins_with_the_agreed_message),
        cmocka_unit_test(sw_iwarp_next__names_no_key_0),
        cmocka_unit_test(sw_iwarp_post__knows_what_iwarp_has_not),
        cmocka_unit_test(sw_iwarp_is_local__comes_in_turn),
        cmocka_unit_test(sw_iwarp_conclude__tells_why),
        cmocka_unit_test(sw_iwarp_nudge__is_an_empty_write_between_messages),
        cmocka_unit_test(sw_iwarp_release__lets_a_responder_speak_first),
        cmocka_unit_test(sw_iwarp_unreadable__ends_a_response),
        cmocka_unit_test(sw_iwarp_refuse__is_said_once),
        cmocka_unit_test(sw_iwarp_refuse__follows_the_answers_to_what_came_before),
        cmocka_unit_test(sw_iwarp_refuse__comes_within_a_message),
        cmocka_unit_test(sw_iwarp_say_last__says_why_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
