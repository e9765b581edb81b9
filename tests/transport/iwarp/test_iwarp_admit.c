/* SPDX-License-Identifier: BSD-2-Clause */
/* What the machine of iWARP makes of segments that come. */
#include "transport/iwarp/iwarp_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/bytes.h"
#include "wire/iwarp/mpa.h"

static void sw_iwarp_admit__asks_for_sends_in_order(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    assert_int_equal(iwarp_take_send(rig, SW_RDMAP_SEND_SE_INV, 1, 0, 100, false), SW_IWARP_DEMAND);
    assert_int_equal(rig->input.demand.kind, SW_DEMAND_SEND);
    assert_true(rig->input.demand.first && !rig->input.demand.last);
    sw_iwarp_conclude(&rig->machine, &rig->input.demand, &iwarp_good);
    /* between its parts */
    assert_int_equal(iwarp_take_write(rig, 0x1000, 10, true), SW_IWARP_DEMAND);
    sw_iwarp_conclude(&rig->machine, &rig->input.demand, &iwarp_good);
    assert_int_equal(iwarp_take_send(rig, SW_RDMAP_SEND_SE_INV, 1, 100, 7, true), SW_IWARP_DEMAND);
    assert_true(!rig->input.demand.first && rig->input.demand.last);
    assert_int_equal(rig->input.demand.offset, 100);
    assert_true(rig->input.demand.solicited && rig->input.demand.has_inv);
    assert_int_equal(rig->input.demand.inv_rkey, 0xabcd);
    sw_iwarp_conclude(&rig->machine, &rig->input.demand, &iwarp_good);
    assert_int_equal(iwarp_take_send(rig, SW_RDMAP_SEND, 2, 0, 0, true), SW_IWARP_DEMAND);
    assert_true(rig->input.demand.first && rig->input.demand.last);
}

static void sw_iwarp_admit__terminates_sends_out_of_place(void **state)
{
    (void)state;
    static const struct {
        uint8_t kind;
        uint32_t msn, mo, len;
        uint16_t cause;
    } cases[] = {
        {SW_RDMAP_SEND, 2, 100, 10, SW_TERMINATE_MSN},
        {SW_RDMAP_SEND, 0, 100, 10, SW_TERMINATE_MSN},
        {SW_RDMAP_SEND, 1, 99, 10, SW_TERMINATE_MO},
        {SW_RDMAP_SEND, 1, 0xffffffff, 10, SW_TERMINATE_MO},
        {SW_RDMAP_SEND_SE, 1, 100, 10, SW_TERMINATE_OPCODE},
        {SW_RDMAP_IMMEDIATE, 1, 100, 8, SW_TERMINATE_OPCODE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct iwarp_rig *rig = iwarp_rig_of();
        iwarp_take_send(rig, SW_RDMAP_SEND, 1, 0, 100, false);
        sw_iwarp_conclude(&rig->machine, &rig->input.demand, &iwarp_good);
        assert_int_equal(
            iwarp_take_send(rig, cases[i].kind, cases[i].msn, cases[i].mo, cases[i].len, true),
            SW_IWARP_NOTHING);
        iwarp_terminates(rig, cases[i].cause);
        assert_int_equal(iwarp_take_send(rig, SW_RDMAP_SEND, 1, 100, 10, true), SW_IWARP_NOTHING);
    }
}

static void sw_iwarp_admit__places_writes_and_looks_at_no_empty_one(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    assert_int_equal(iwarp_take_write(rig, 0x1000, 0, true), SW_IWARP_NOTHING);
    assert_false(rig->machine.over);
    assert_int_equal(iwarp_take_write(rig, 0x1000, 10, false), SW_IWARP_DEMAND);
    assert_int_equal(rig->input.demand.rkey, 0x99);
    assert_int_equal(rig->input.demand.addr, 0x1000);
    sw_iwarp_conclude(&rig->machine, &rig->input.demand, &iwarp_good);
    assert_int_equal(iwarp_take_write(rig, 0x100a, 7, true), SW_IWARP_DEMAND);
    sw_iwarp_conclude(&rig->machine, &rig->input.demand, &iwarp_good);
    assert_int_equal(iwarp_take_send(rig, SW_RDMAP_IMMEDIATE_SE, 1, 0, 8, true), SW_IWARP_DEMAND);
    assert_int_equal(rig->input.demand.kind, SW_DEMAND_WRITE);
    assert_true(rig->input.demand.has_imm && rig->input.demand.solicited);
    assert_int_equal(rig->input.demand.total, 17);
    sw_iwarp_conclude(&rig->machine, &rig->input.demand, &iwarp_good);
    /* up to the end */
    assert_int_equal(iwarp_take_write(rig, UINT64_MAX - 9, 10, true), SW_IWARP_DEMAND);
    sw_iwarp_conclude(&rig->machine, &rig->input.demand, &iwarp_good);
    assert_int_equal(iwarp_take_write(rig, UINT64_MAX - 8, 10, true), SW_IWARP_NOTHING);
    iwarp_terminates(rig, SW_TERMINATE_WRAP);
}

static void sw_iwarp_admit__answers_reads_in_order(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    assert_int_equal(iwarp_take_read(rig, 1, 0x3000, 300), SW_IWARP_DEMAND);
    assert_int_equal(rig->input.demand.kind, SW_DEMAND_READ);
    assert_int_equal(rig->input.demand.total, 300);
    sw_iwarp_conclude(&rig->machine, &rig->input.demand, &iwarp_good);
    /* of nothing: it is not checked */
    assert_int_equal(iwarp_take_read(rig, 2, 0, 0), SW_IWARP_NOTHING);
    iwarp_sends(rig, SW_RDMAP_READ_RESPONSE);
    assert_int_equal(rig->segment.stag, 0x5151);
    assert_int_equal(rig->segment.to, 0x7000);
    assert_int_equal(rig->emission.source, SW_PAYLOAD_MEMORY);
    assert_int_equal(rig->emission.addr, 0x3000);
    const uint32_t first = rig->emission.payload_len;
    iwarp_sends(rig, SW_RDMAP_READ_RESPONSE);
    assert_int_equal(rig->segment.to, 0x7000 + first);
    assert_int_equal(rig->emission.addr, 0x3000 + first);
    assert_true(rig->segment.last);
    iwarp_sends(rig, SW_RDMAP_READ_RESPONSE);
    assert_int_equal(rig->emission.payload_len, 0);
    iwarp_sends_nothing(rig);
}

static void sw_iwarp_admit__takes_no_more_reads_than_agreed(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    for (uint32_t i = 1; i <= IWARP_IRD; i++) {
        assert_int_equal(iwarp_take_read(rig, i, 0x3000, 10), SW_IWARP_DEMAND);
        sw_iwarp_conclude(&rig->machine, &rig->input.demand, &iwarp_good);
    }
    assert_int_equal(iwarp_take_read(rig, IWARP_IRD + 1, 0x3000, 10), SW_IWARP_NOTHING);
    for (uint32_t i = 0; i < IWARP_IRD; i++)
        iwarp_sends(rig, SW_RDMAP_READ_RESPONSE);
    iwarp_terminates(rig, SW_TERMINATE_STREAM);
    assert_int_equal(rig->machine.terminate.read_len, SW_RDMAP_READ_BYTES);
    rig = iwarp_rig_of();
    assert_int_equal(iwarp_take_read(rig, 1, UINT64_MAX, 2), SW_IWARP_NOTHING);
    iwarp_terminates(rig, SW_TERMINATE_READ_WRAP);
}

static void sw_iwarp_admit__opens_a_sink_for_its_read_alone(void **state)
{
    (void)state;
    static const struct {
        int32_t token; /* off the right one */
        uint32_t to, len;
        bool last;
        uint16_t cause;
    } cases[] = {
        {1, 0, 10, true, SW_TERMINATE_STAG},    {0, 1, 9, true, SW_TERMINATE_BOUNDS},
        {0, 0, 11, true, SW_TERMINATE_BOUNDS},  {0, 0, 9, true, SW_TERMINATE_BOUNDS},
        {0, 0, 10, false, SW_TERMINATE_BOUNDS},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct iwarp_rig *rig = iwarp_rig_of();
        iwarp_post(rig, SW_REQUEST_READ, 10, 0);
        iwarp_sends(rig, SW_RDMAP_READ_REQUEST);
        const uint32_t token = iwarp_token_of(rig, 0) + (uint32_t)cases[i].token;
        assert_int_equal(iwarp_take_response(rig, token, cases[i].to, cases[i].len, cases[i].last),
                         SW_IWARP_NOTHING);
        iwarp_terminates(rig, cases[i].cause);
    }
    struct iwarp_rig *rig = iwarp_rig_of();
    iwarp_post(rig, SW_REQUEST_READ, 10, 0);
    iwarp_sends(rig, SW_RDMAP_READ_REQUEST);
    const uint32_t token = iwarp_token_of(rig, 0);
    assert_int_not_equal(token, 0);
    assert_int_equal(iwarp_take_response(rig, token, 0, 4, false), SW_IWARP_PLACE);
    assert_int_equal(iwarp_take_response(rig, token, 4, 6, true), SW_IWARP_PLACE);
    assert_int_equal(rig->input.offset, 4);
    assert_int_equal(iwarp_take_response(rig, token, 0, 10, true), SW_IWARP_NOTHING); /* used up */
    iwarp_terminates(rig, SW_TERMINATE_STAG);
}

static void sw_iwarp_awaits__tells_where_a_response_goes(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    uint32_t position;
    uint64_t offset;
    struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_READ_RESPONSE), .to = 4, .payload_len = 6};
    assert_false(sw_iwarp_awaits(&rig->machine, &segment, &position, &offset)); /* no READ */
    iwarp_post(rig, SW_REQUEST_READ, 10, 0);
    iwarp_sends(rig, SW_RDMAP_READ_REQUEST);
    segment.stag = iwarp_token_of(rig, 0);
    assert_false(sw_iwarp_awaits(&rig->machine, &segment, &position, &offset)); /* not its turn */
    assert_int_equal(iwarp_take_response(rig, segment.stag, 0, 4, false), SW_IWARP_PLACE);
    assert_true(sw_iwarp_awaits(&rig->machine, &segment, &position, &offset));
    assert_int_equal(position, 0);
    assert_int_equal(offset, 4);
    segment.payload_len = 7;
    assert_false(sw_iwarp_awaits(&rig->machine, &segment, &position, &offset)); /* too long */
    segment.payload_len = 6;
    segment.stag++;
    assert_false(sw_iwarp_awaits(&rig->machine, &segment, &position, &offset));
}

static enum sw_iwarp_step take_atomic(struct iwarp_rig *rig, const struct sw_rdmap_atomic *atomic)
{
    uint8_t body[SW_RDMAP_ATOMIC_REQUEST_BYTES];
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_ATOMIC_REQUEST), .last = true, .msn = 1};
    sw_rdmap_atomic_encode(atomic, body);
    return iwarp_take(rig, &segment, body, sizeof(body));
}

static void sw_iwarp_admit__carries_atomics_there_and_back(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    struct sw_rdmap_atomic atomic = {.kind = SW_RDMAP_CMP_SWAP,
                                     .id = 9,
                                     .stag = 8,
                                     .to = 0x4000,
                                     .data = 6,
                                     .data_mask = UINT64_MAX,
                                     .compare = 5,
                                     .compare_mask = UINT64_MAX};
    assert_int_equal(take_atomic(rig, &atomic), SW_IWARP_DEMAND);
    assert_int_equal(rig->input.demand.kind, SW_DEMAND_CMP_SWAP);
    assert_int_equal(rig->input.demand.compare_add, 5);
    assert_int_equal(rig->input.demand.swap, 6);
    const struct sw_outcome outcome = {.syndrome = 0x1f, .original = 1234};
    sw_iwarp_conclude(&rig->machine, &rig->input.demand, &outcome);
    iwarp_sends(rig, SW_RDMAP_ATOMIC_RESPONSE);
    struct sw_rdmap_original original;
    sw_rdmap_original_decode(rig->emission.head + 20, &original);
    assert_int_equal(original.id, 9);
    assert_int_equal(original.value, 1234);

    iwarp_post(rig, SW_REQUEST_FETCH_ADD, 8, 0);
    iwarp_sends(rig, SW_RDMAP_ATOMIC_REQUEST);
    sw_rdmap_atomic_decode(rig->emission.head + 20, &atomic);
    assert_int_equal(atomic.data, 5);
    assert_int_equal(atomic.data_mask, 0);
    uint8_t body[SW_RDMAP_ATOMIC_RESPONSE_BYTES];
    original = (struct sw_rdmap_original){.id = atomic.id, .value = 77};
    sw_rdmap_original_encode(&original, body);
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_ATOMIC_RESPONSE), .last = true, .msn = 1};
    assert_int_equal(iwarp_take(rig, &segment, body, sizeof(body)), SW_IWARP_PLACE);
    assert_null(rig->input.bytes);
    assert_int_equal(rig->input.value, 77);
    assert_int_equal(sw_iwarp_done(&rig->machine), 1);
}

static void sw_iwarp_admit__executes_no_masked_atomic(void **state)
{
    (void)state;
    const struct sw_rdmap_atomic adds = {.kind = SW_RDMAP_FETCH_ADD, .data_mask = 1};
    const struct sw_rdmap_atomic swaps = {
        .kind = SW_RDMAP_CMP_SWAP, .data_mask = UINT64_MAX, .compare_mask = 1};
    const struct sw_rdmap_atomic unknown = {.kind = 5};
    struct iwarp_rig *rig = iwarp_rig_of();
    assert_int_equal(take_atomic(rig, &adds), SW_IWARP_NOTHING);
    iwarp_terminates(rig, SW_TERMINATE_UNSPECIFIED);
    rig = iwarp_rig_of();
    assert_int_equal(take_atomic(rig, &swaps), SW_IWARP_NOTHING);
    iwarp_terminates(rig, SW_TERMINATE_UNSPECIFIED);
    rig = iwarp_rig_of();
    assert_int_equal(take_atomic(rig, &unknown), SW_IWARP_NOTHING);
    iwarp_terminates(rig, SW_TERMINATE_OPCODE);
}

static void sw_iwarp_admit__holds_the_responder_until_it_heard(void **state)
{
    (void)state;
    static const uint8_t rtrs[] = {0, SW_MPA_RTR_SEND, SW_MPA_RTR_WRITE, SW_MPA_RTR_READ};
    for (size_t i = 0; i < sizeof(rtrs); i++) {
        struct sw_iwarp_config config = iwarp_usual();
        config.is_initiator = false;
        config.is_held = true;
        config.rtr = rtrs[i];
        struct iwarp_rig *rig = iwarp_rig_with(&config);
        iwarp_post(rig, SW_REQUEST_SEND, 10, 0);
        iwarp_sends_nothing(rig);
        if (rtrs[i] == SW_MPA_RTR_WRITE)
            assert_int_equal(iwarp_take_write(rig, 0, 0, true), SW_IWARP_NOTHING);
        else if (rtrs[i] == SW_MPA_RTR_READ)
            assert_int_equal(iwarp_take_read(rig, 1, 0, 0), SW_IWARP_NOTHING);
        else /* the empty SEND takes no receive where it was agreed on */
            assert_int_equal(iwarp_take_send(rig, SW_RDMAP_SEND, 1, 0, 0, true),
                             rtrs[i] ? SW_IWARP_NOTHING : SW_IWARP_DEMAND);
        if (rtrs[i] == SW_MPA_RTR_READ)
            iwarp_sends(rig, SW_RDMAP_READ_RESPONSE);
        iwarp_sends(rig, SW_RDMAP_SEND);
        iwarp_sends_nothing(rig);
    }
    struct sw_iwarp_config config = iwarp_usual();
    config.is_initiator = false;
    config.rtr = SW_MPA_RTR_WRITE;
    struct iwarp_rig *rig = iwarp_rig_with(&config);
    assert_int_equal(iwarp_take_send(rig, SW_RDMAP_SEND, 1, 0, 0, true), SW_IWARP_NOTHING);
    iwarp_terminates(rig, SW_TERMINATE_RTR);
}

static void sw_iwarp_admit__hears_a_terminate(void **state)
{
    (void)state;
    struct iwarp_rig *rig = iwarp_rig_of();
    static const uint8_t body[] = {0x21, 0x02, 0x00, 0x00};
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_TERMINATE), .last = true, .msn = 1};
    iwarp_post(rig, SW_REQUEST_SEND, 10, 0);
    assert_int_equal(iwarp_take(rig, &segment, body, sizeof(body)), SW_IWARP_NOTHING);
    assert_true(rig->machine.over && rig->machine.by_peer);
    assert_int_equal(rig->machine.terminate.cause, 0x2102);
    iwarp_sends_nothing(rig); /* it is not answered */
}

static void sw_iwarp_admit__terminates_what_is_no_segment(void **state)
{
    (void)state;
    static const struct {
        uint8_t first, second, queue;
        uint16_t cause;
    } cases[] = {
        {0xc2, 0x40, 0, SW_TERMINATE_VERSION}, {0x42, 0x43, 0, SW_TERMINATE_VERSION_QUEUE},
        {0x41, 0x43, 9, SW_TERMINATE_QUEUE},   {0x41, 0x83, 0, SW_TERMINATE_RDMAP_VERSION},
        {0x41, 0x4c, 0, SW_TERMINATE_OPCODE},  {0x41, 0x43, 1, SW_TERMINATE_OPCODE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct iwarp_rig *rig = iwarp_rig_of();
        uint8_t ulpdu[18] = {cases[i].first, cases[i].second};
        ulpdu[9] = cases[i].queue;
        ulpdu[13] = 1;
        assert_int_equal(sw_iwarp_admit(&rig->machine, ulpdu, sizeof(ulpdu), &rig->input),
                         SW_IWARP_NOTHING);
        iwarp_terminates(rig, cases[i].cause);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_iwarp_admit__asks_for_sends_in_order),
        cmocka_unit_test(sw_iwarp_admit__terminates_sends_out_of_place),
        cmocka_unit_test(sw_iwarp_admit__places_writes_and_looks_at_no_empty_one),
        cmocka_unit_test(sw_iwarp_admit__answers_reads_in_order),
        cmocka_unit_test(sw_iwarp_admit__takes_no_more_reads_than_agreed),
        cmocka_unit_test(sw_iwarp_admit__opens_a_sink_for_its_read_alone),
        cmocka_unit_test(sw_iwarp_awaits__tells_where_a_response_goes),
        cmocka_unit_test(sw_iwarp_admit__carries_atomics_there_and_back),
        cmocka_unit_test(sw_iwarp_admit__executes_no_masked_atomic),
        cmocka_unit_test(sw_iwarp_admit__holds_the_responder_until_it_heard),
        cmocka_unit_test(sw_iwarp_admit__hears_a_terminate),
        cmocka_unit_test(sw_iwarp_admit__terminates_what_is_no_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
