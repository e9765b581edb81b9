/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/iwarp/iwarp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/bytes.h"
#include "wire/iwarp/mpa.h"

enum { RING = 16, FPDU_BYTES = 256, IRD = 4, ORD = 2 };
static const struct sw_outcome good = {.syndrome = 0x1f};

struct fixture {
    struct sw_iwarp machine;
    struct sw_request ring[RING];
    struct sw_iwarp_emission emission;
    struct sw_ddp_segment segment; /* of the emission; without its payload */
    struct sw_iwarp_input input;
};

static struct sw_iwarp_config usual(void)
{
    return (struct sw_iwarp_config){
        .ird = IRD, .ord = ORD, .fpdu_max = FPDU_BYTES, .is_initiator = true, .token_seed = 77};
}

static struct fixture *fixture_with(const struct sw_iwarp_config *config)
{
    static struct fixture fixture;
    memset(&fixture, 0, sizeof(fixture));
    sw_iwarp_init(&fixture.machine, config, fixture.ring, RING);
    return &fixture;
}

static struct fixture *fixture_of(void)
{
    const struct sw_iwarp_config config = usual();
    return fixture_with(&config);
}

static void post(struct fixture *f, uint8_t kind, uint32_t len_bytes, uint8_t flags)
{
    const struct sw_request request = {.kind = kind,
                                       .flags = flags,
                                       .len_bytes = len_bytes,
                                       .rkey = 0x1234,
                                       .remote_addr = 0x10000,
                                       .imm_or_key = 0x01020304,
                                       .compare_add = 5,
                                       .swap = 6};
    assert_true(sw_iwarp_supports(&f->machine, &request));
    assert_true(sw_iwarp_post(&f->machine, &request));
}

/* The next FPDU, which is of this kind. */
static void expect(struct fixture *f, enum sw_rdmap_kind kind)
{
    uint8_t ulpdu[FPDU_BYTES] = {0};
    assert_true(sw_iwarp_next(&f->machine, &f->emission));
    const uint32_t len = sw_iwarp_ulpdu_len(&f->emission);
    assert_int_equal(sw_be16_load(f->emission.head), len);
    assert_true(sw_fpdu_len(len) <= FPDU_BYTES);
    memcpy(ulpdu, f->emission.head + SW_FPDU_LENGTH_BYTES, f->emission.head_len - 2u);
    assert_int_equal(sw_ddp_check(ulpdu, len), SW_DDP_FAULT_NONE);
    sw_ddp_decode(ulpdu, len, &f->segment);
    assert_int_equal(f->segment.opcode->number, kind);
}

static void expect_nothing(struct fixture *f)
{
    assert_false(sw_iwarp_next(&f->machine, &f->emission));
}

static void expect_terminate(struct fixture *f, uint16_t cause)
{
    assert_true(f->machine.over && !f->machine.by_peer);
    expect(f, SW_RDMAP_TERMINATE);
    assert_int_equal(sw_be16_load(f->emission.head + 2 + SW_DDP_UNTAGGED_BYTES), cause);
    assert_int_equal(f->segment.msn, 1);
    expect_nothing(f); /* it is the last */
}

/* An arrival; zeros as payload unless `body` is given. */
static enum sw_iwarp_step take(struct fixture *f, const struct sw_ddp_segment *segment,
                               const uint8_t *body, uint32_t body_len)
{
    static uint8_t ulpdu[4096];
    memset(ulpdu, 0, sizeof(ulpdu));
    const uint32_t at = sw_ddp_encode(segment, ulpdu);
    if (body)
        memcpy(ulpdu + at, body, body_len);
    memset(&f->input, 0, sizeof(f->input));
    return sw_iwarp_admit(&f->machine, ulpdu, at + body_len, &f->input);
}

static enum sw_iwarp_step take_send(struct fixture *f, uint8_t kind, uint32_t msn, uint32_t mo,
                                    uint32_t len, bool last)
{
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(kind), .last = last, .msn = msn, .mo = mo, .stag = 0xabcd};
    return take(f, &segment, NULL, len);
}

static enum sw_iwarp_step take_write(struct fixture *f, uint64_t to, uint32_t len, bool last)
{
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_WRITE), .last = last, .stag = 0x99, .to = to};
    return take(f, &segment, NULL, len);
}

static enum sw_iwarp_step take_read(struct fixture *f, uint32_t msn, uint64_t from, uint32_t len)
{
    uint8_t body[SW_RDMAP_READ_BYTES];
    const struct sw_rdmap_read read = {.sink_stag = 0x5151,
                                       .sink_to = 0x7000,
                                       .len_bytes = len,
                                       .source_stag = 0x88,
                                       .source_to = from};
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_READ_REQUEST), .last = true, .msn = msn};
    sw_rdmap_read_encode(&read, body);
    return take(f, &segment, body, sizeof(body));
}

static enum sw_iwarp_step take_response(struct fixture *f, uint32_t stag, uint64_t to, uint32_t len,
                                        bool last)
{
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_READ_RESPONSE), .last = last, .stag = stag, .to = to};
    return take(f, &segment, NULL, len);
}

static uint32_t token_of(const struct fixture *f, uint32_t index)
{
    return f->machine.reads[index].token;
}

static void conclude(struct fixture *f, uint8_t syndrome, enum sw_access_fault why)
{
    const struct sw_outcome outcome = {.syndrome = syndrome, .why = (uint8_t)why};
    sw_iwarp_conclude(&f->machine, &f->input.demand, &outcome);
}

/* ---- what leaves ---- */

static void sw_iwarp_next__cuts_a_send_into_fpdus(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    const uint32_t room = sw_fpdu_ulpdu_max(FPDU_BYTES) - SW_DDP_UNTAGGED_BYTES;
    post(f, SW_REQUEST_SEND, 2 * room + 5, SW_REQUEST_SOLICITED | SW_REQUEST_INV);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(sw_iwarp_done(&f->machine), 0);
        expect(f, SW_RDMAP_SEND_SE_INV);
        assert_int_equal(f->segment.msn, 1);
        assert_int_equal(f->segment.mo, i * room);
        assert_int_equal(f->segment.stag, 0x01020304);
        assert_int_equal(f->segment.last, i == 2);
        assert_int_equal(f->emission.source, SW_PAYLOAD_REQUEST);
        assert_int_equal(f->emission.offset, i * room);
    }
    assert_int_equal(sw_iwarp_done(&f->machine), 1); /* TCP has it all */
    post(f, SW_REQUEST_SEND, 0, 0);
    expect(f, SW_RDMAP_SEND);
    assert_int_equal(f->segment.msn, 2);
    expect_nothing(f);
}

static void sw_iwarp_next__writes_and_tells_the_immediate(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    const uint32_t room = sw_fpdu_ulpdu_max(FPDU_BYTES) - SW_DDP_TAGGED_BYTES;
    post(f, SW_REQUEST_WRITE, room + 1, SW_REQUEST_IMM);
    expect(f, SW_RDMAP_WRITE);
    assert_int_equal(f->segment.to, 0x10000);
    assert_false(f->segment.last);
    expect(f, SW_RDMAP_WRITE);
    assert_int_equal(f->segment.to, 0x10000 + room);
    assert_int_equal(f->emission.payload_len, 1);
    assert_true(f->segment.last);
    assert_int_equal(sw_iwarp_done(&f->machine), 0);
    expect(f, SW_RDMAP_IMMEDIATE);
    assert_memory_equal(f->emission.head + 20, "\x00\x00\x00\x00\x04\x03\x02\x01", 8);
    assert_int_equal(sw_iwarp_done(&f->machine), 1);
    post(f, SW_REQUEST_WRITE, 0, SW_REQUEST_IMM | SW_REQUEST_SOLICITED);
    expect(f, SW_RDMAP_WRITE);
    assert_int_equal(f->segment.stag, 1); /* never 0 */
    expect(f, SW_RDMAP_IMMEDIATE_SE);
    assert_int_equal(f->segment.msn, 2);
}

static void sw_iwarp_next__finishes_a_message_before_another(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    post(f, SW_REQUEST_WRITE, 1000, 0);
    post(f, SW_REQUEST_WRITE, 1000, 0);
    expect(f, SW_RDMAP_WRITE); /* the first part */
    uint8_t before = SW_RDMAP_WRITE;
    bool is_whole = false;
    assert_int_equal(take_read(f, 1, 0x3000, 1000), SW_IWARP_DEMAND);
    sw_iwarp_conclude(&f->machine, &f->input.demand, &good);
    uint32_t turns = 0;
    while (sw_iwarp_next(&f->machine, &f->emission)) {
        const uint8_t kind = f->emission.head[3] & 15;
        assert_true(is_whole || kind == before);
        is_whole = f->emission.head[2] & 0x40;
        turns += kind != before;
        before = kind;
    }
    assert_int_equal(turns, 2); /* the answer had its turn between both */
}

static void sw_iwarp_next__keeps_to_the_depth_of_reads(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    for (int i = 0; i < ORD + 1; i++)
        post(f, SW_REQUEST_READ, 10, 0);
    for (uint32_t i = 1; i <= ORD; i++) {
        expect(f, SW_RDMAP_READ_REQUEST);
        assert_int_equal(f->segment.msn, i);
    }
    expect_nothing(f);
    assert_int_equal(take_response(f, token_of(f, 0), 0, 10, true), SW_IWARP_PLACE);
    assert_int_equal(sw_iwarp_done(&f->machine), 1);
    expect(f, SW_RDMAP_READ_REQUEST);
}

static void sw_iwarp_next__waits_at_a_fence(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    post(f, SW_REQUEST_READ, 10, 0);
    post(f, SW_REQUEST_SEND, 10, 0);
    post(f, SW_REQUEST_SEND, 10, SW_REQUEST_FENCE);
    expect(f, SW_RDMAP_READ_REQUEST);
    expect(f, SW_RDMAP_SEND); /* which the READ does not hold back */
    expect_nothing(f);
    assert_int_equal(sw_iwarp_done(&f->machine), 0);
    take_response(f, token_of(f, 0), 0, 10, true);
    assert_int_equal(sw_iwarp_done(&f->machine), 2);
    expect(f, SW_RDMAP_SEND);
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
        struct sw_iwarp_config config = usual();
        config.rtr = cases[i].rtr;
        struct fixture *f = fixture_with(&config);
        post(f, SW_REQUEST_SEND, 10, 0);
        expect(f, cases[i].kind);
        assert_int_equal(sw_iwarp_ulpdu_len(&f->emission), cases[i].len); /* it is empty */
        assert_int_equal(f->machine.done, 0);
        expect(f, SW_RDMAP_SEND);
        assert_int_equal(f->segment.msn, i == 0 ? 2 : 1);
        if (i == 2) {
            assert_int_equal(take_response(f, 1, 0, 0, true), SW_IWARP_NOTHING);
            assert_false(f->machine.over);
        }
    }
}

/* Chelsio's NICs drop a connection on it. */
static void sw_iwarp_next__names_no_key_0(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    assert_true(sw_iwarp_post(&f->machine, &(struct sw_request){.kind = SW_REQUEST_WRITE}));
    expect(f, SW_RDMAP_WRITE);
    assert_int_equal(f->segment.stag, 1);
    sw_iwarp_nudge(&f->machine);
    expect(f, SW_RDMAP_WRITE);
    assert_int_equal(f->segment.stag, 1);
}

static void sw_iwarp_post__knows_what_iwarp_has_not(void **state)
{
    (void)state;
    static const struct sw_request refused[] = {{.kind = SW_REQUEST_FLUSH},
                                                {.kind = SW_REQUEST_ATOMIC_WRITE},
                                                {.kind = SW_REQUEST_SEND, .flags = SW_REQUEST_IMM}};
    struct fixture *f = fixture_of();
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
        assert_false(sw_iwarp_supports(&f->machine, &refused[i]));
    for (int i = 0; i < RING; i++)
        post(f, SW_REQUEST_SEND, 1, 0);
    assert_false(sw_iwarp_post(&f->machine, &(struct sw_request){.kind = SW_REQUEST_SEND}));
}

static void sw_iwarp_is_local__comes_in_turn(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    post(f, SW_REQUEST_READ, 10, 0);
    post(f, SW_REQUEST_LOCAL, 0, 0);
    post(f, SW_REQUEST_SEND, 1, 0);
    expect(f, SW_RDMAP_READ_REQUEST);
    expect_nothing(f);
    assert_false(sw_iwarp_is_local(&f->machine));
    take_response(f, token_of(f, 0), 0, 10, true);
    assert_true(sw_iwarp_is_local(&f->machine));
    sw_iwarp_local_done(&f->machine);
    assert_int_equal(sw_iwarp_done(&f->machine), 2);
    expect(f, SW_RDMAP_SEND);
}

/* ---- what comes ---- */

static void sw_iwarp_admit__asks_for_sends_in_order(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    assert_int_equal(take_send(f, SW_RDMAP_SEND_SE_INV, 1, 0, 100, false), SW_IWARP_DEMAND);
    assert_int_equal(f->input.demand.kind, SW_DEMAND_SEND);
    assert_true(f->input.demand.first && !f->input.demand.last);
    sw_iwarp_conclude(&f->machine, &f->input.demand, &good);
    assert_int_equal(take_write(f, 0x1000, 10, true), SW_IWARP_DEMAND); /* between its parts */
    sw_iwarp_conclude(&f->machine, &f->input.demand, &good);
    assert_int_equal(take_send(f, SW_RDMAP_SEND_SE_INV, 1, 100, 7, true), SW_IWARP_DEMAND);
    assert_true(!f->input.demand.first && f->input.demand.last);
    assert_int_equal(f->input.demand.offset, 100);
    assert_true(f->input.demand.solicited && f->input.demand.has_inv);
    assert_int_equal(f->input.demand.inv_rkey, 0xabcd);
    sw_iwarp_conclude(&f->machine, &f->input.demand, &good);
    assert_int_equal(take_send(f, SW_RDMAP_SEND, 2, 0, 0, true), SW_IWARP_DEMAND);
    assert_true(f->input.demand.first && f->input.demand.last);
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
        struct fixture *f = fixture_of();
        take_send(f, SW_RDMAP_SEND, 1, 0, 100, false);
        sw_iwarp_conclude(&f->machine, &f->input.demand, &good);
        assert_int_equal(take_send(f, cases[i].kind, cases[i].msn, cases[i].mo, cases[i].len, true),
                         SW_IWARP_NOTHING);
        expect_terminate(f, cases[i].cause);
        assert_int_equal(take_send(f, SW_RDMAP_SEND, 1, 100, 10, true), SW_IWARP_NOTHING);
    }
}

static void sw_iwarp_admit__places_writes_and_looks_at_no_empty_one(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    assert_int_equal(take_write(f, 0x1000, 0, true), SW_IWARP_NOTHING);
    assert_false(f->machine.over);
    assert_int_equal(take_write(f, 0x1000, 10, false), SW_IWARP_DEMAND);
    assert_int_equal(f->input.demand.rkey, 0x99);
    assert_int_equal(f->input.demand.addr, 0x1000);
    sw_iwarp_conclude(&f->machine, &f->input.demand, &good);
    assert_int_equal(take_write(f, 0x100a, 7, true), SW_IWARP_DEMAND);
    sw_iwarp_conclude(&f->machine, &f->input.demand, &good);
    assert_int_equal(take_send(f, SW_RDMAP_IMMEDIATE_SE, 1, 0, 8, true), SW_IWARP_DEMAND);
    assert_int_equal(f->input.demand.kind, SW_DEMAND_WRITE);
    assert_true(f->input.demand.has_imm && f->input.demand.solicited);
    assert_int_equal(f->input.demand.total, 17);
    sw_iwarp_conclude(&f->machine, &f->input.demand, &good);
    assert_int_equal(take_write(f, UINT64_MAX - 9, 10, true), SW_IWARP_DEMAND); /* up to the end */
    sw_iwarp_conclude(&f->machine, &f->input.demand, &good);
    assert_int_equal(take_write(f, UINT64_MAX - 8, 10, true), SW_IWARP_NOTHING);
    expect_terminate(f, SW_TERMINATE_WRAP);
}

static void sw_iwarp_admit__answers_reads_in_order(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    assert_int_equal(take_read(f, 1, 0x3000, 300), SW_IWARP_DEMAND);
    assert_int_equal(f->input.demand.kind, SW_DEMAND_READ);
    assert_int_equal(f->input.demand.total, 300);
    sw_iwarp_conclude(&f->machine, &f->input.demand, &good);
    assert_int_equal(take_read(f, 2, 0, 0), SW_IWARP_NOTHING); /* of nothing: it is not checked */
    expect(f, SW_RDMAP_READ_RESPONSE);
    assert_int_equal(f->segment.stag, 0x5151);
    assert_int_equal(f->segment.to, 0x7000);
    assert_int_equal(f->emission.source, SW_PAYLOAD_MEMORY);
    assert_int_equal(f->emission.addr, 0x3000);
    const uint32_t first = f->emission.payload_len;
    expect(f, SW_RDMAP_READ_RESPONSE);
    assert_int_equal(f->segment.to, 0x7000 + first);
    assert_int_equal(f->emission.addr, 0x3000 + first);
    assert_true(f->segment.last);
    expect(f, SW_RDMAP_READ_RESPONSE);
    assert_int_equal(f->emission.payload_len, 0);
    expect_nothing(f);
}

static void sw_iwarp_admit__takes_no_more_reads_than_agreed(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    for (uint32_t i = 1; i <= IRD; i++) {
        assert_int_equal(take_read(f, i, 0x3000, 10), SW_IWARP_DEMAND);
        sw_iwarp_conclude(&f->machine, &f->input.demand, &good);
    }
    assert_int_equal(take_read(f, IRD + 1, 0x3000, 10), SW_IWARP_NOTHING);
    expect_terminate(f, SW_TERMINATE_STREAM);
    assert_int_equal(f->machine.terminate.read_len, SW_RDMAP_READ_BYTES);
    f = fixture_of();
    assert_int_equal(take_read(f, 1, UINT64_MAX, 2), SW_IWARP_NOTHING);
    expect_terminate(f, SW_TERMINATE_READ_WRAP);
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
        struct fixture *f = fixture_of();
        post(f, SW_REQUEST_READ, 10, 0);
        expect(f, SW_RDMAP_READ_REQUEST);
        const uint32_t token = token_of(f, 0) + (uint32_t)cases[i].token;
        assert_int_equal(take_response(f, token, cases[i].to, cases[i].len, cases[i].last),
                         SW_IWARP_NOTHING);
        expect_terminate(f, cases[i].cause);
    }
    struct fixture *f = fixture_of();
    post(f, SW_REQUEST_READ, 10, 0);
    expect(f, SW_RDMAP_READ_REQUEST);
    const uint32_t token = token_of(f, 0);
    assert_int_not_equal(token, 0);
    assert_int_equal(take_response(f, token, 0, 4, false), SW_IWARP_PLACE);
    assert_int_equal(take_response(f, token, 4, 6, true), SW_IWARP_PLACE);
    assert_int_equal(f->input.offset, 4);
    assert_int_equal(take_response(f, token, 0, 10, true), SW_IWARP_NOTHING); /* used up */
    expect_terminate(f, SW_TERMINATE_STAG);
}

static void sw_iwarp_awaits__tells_where_a_response_goes(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    uint32_t position;
    uint64_t offset;
    struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_READ_RESPONSE), .to = 4, .payload_len = 6};
    assert_false(sw_iwarp_awaits(&f->machine, &segment, &position, &offset)); /* no READ */
    post(f, SW_REQUEST_READ, 10, 0);
    expect(f, SW_RDMAP_READ_REQUEST);
    segment.stag = token_of(f, 0);
    assert_false(sw_iwarp_awaits(&f->machine, &segment, &position, &offset)); /* not its turn */
    assert_int_equal(take_response(f, segment.stag, 0, 4, false), SW_IWARP_PLACE);
    assert_true(sw_iwarp_awaits(&f->machine, &segment, &position, &offset));
    assert_int_equal(position, 0);
    assert_int_equal(offset, 4);
    segment.payload_len = 7;
    assert_false(sw_iwarp_awaits(&f->machine, &segment, &position, &offset)); /* too long */
    segment.payload_len = 6;
    segment.stag++;
    assert_false(sw_iwarp_awaits(&f->machine, &segment, &position, &offset));
}

static enum sw_iwarp_step take_atomic(struct fixture *f, const struct sw_rdmap_atomic *atomic)
{
    uint8_t body[SW_RDMAP_ATOMIC_REQUEST_BYTES];
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_ATOMIC_REQUEST), .last = true, .msn = 1};
    sw_rdmap_atomic_encode(atomic, body);
    return take(f, &segment, body, sizeof(body));
}

static void sw_iwarp_admit__carries_atomics_there_and_back(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    struct sw_rdmap_atomic atomic = {.kind = SW_RDMAP_CMP_SWAP,
                                     .id = 9,
                                     .stag = 8,
                                     .to = 0x4000,
                                     .data = 6,
                                     .data_mask = UINT64_MAX,
                                     .compare = 5,
                                     .compare_mask = UINT64_MAX};
    assert_int_equal(take_atomic(f, &atomic), SW_IWARP_DEMAND);
    assert_int_equal(f->input.demand.kind, SW_DEMAND_CMP_SWAP);
    assert_int_equal(f->input.demand.compare_add, 5);
    assert_int_equal(f->input.demand.swap, 6);
    const struct sw_outcome outcome = {.syndrome = 0x1f, .original = 1234};
    sw_iwarp_conclude(&f->machine, &f->input.demand, &outcome);
    expect(f, SW_RDMAP_ATOMIC_RESPONSE);
    struct sw_rdmap_original original;
    sw_rdmap_original_decode(f->emission.head + 20, &original);
    assert_int_equal(original.id, 9);
    assert_int_equal(original.value, 1234);

    post(f, SW_REQUEST_FETCH_ADD, 8, 0);
    expect(f, SW_RDMAP_ATOMIC_REQUEST);
    sw_rdmap_atomic_decode(f->emission.head + 20, &atomic);
    assert_int_equal(atomic.data, 5);
    assert_int_equal(atomic.data_mask, 0);
    uint8_t body[SW_RDMAP_ATOMIC_RESPONSE_BYTES];
    original = (struct sw_rdmap_original){.id = atomic.id, .value = 77};
    sw_rdmap_original_encode(&original, body);
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_ATOMIC_RESPONSE), .last = true, .msn = 1};
    assert_int_equal(take(f, &segment, body, sizeof(body)), SW_IWARP_PLACE);
    assert_null(f->input.bytes);
    assert_int_equal(f->input.value, 77);
    assert_int_equal(sw_iwarp_done(&f->machine), 1);
}

static void sw_iwarp_admit__executes_no_masked_atomic(void **state)
{
    (void)state;
    const struct sw_rdmap_atomic adds = {.kind = SW_RDMAP_FETCH_ADD, .data_mask = 1};
    const struct sw_rdmap_atomic swaps = {
        .kind = SW_RDMAP_CMP_SWAP, .data_mask = UINT64_MAX, .compare_mask = 1};
    const struct sw_rdmap_atomic unknown = {.kind = 5};
    struct fixture *f = fixture_of();
    assert_int_equal(take_atomic(f, &adds), SW_IWARP_NOTHING);
    expect_terminate(f, SW_TERMINATE_UNSPECIFIED);
    f = fixture_of();
    assert_int_equal(take_atomic(f, &swaps), SW_IWARP_NOTHING);
    expect_terminate(f, SW_TERMINATE_UNSPECIFIED);
    f = fixture_of();
    assert_int_equal(take_atomic(f, &unknown), SW_IWARP_NOTHING);
    expect_terminate(f, SW_TERMINATE_OPCODE);
}

static void sw_iwarp_admit__holds_the_responder_until_it_heard(void **state)
{
    (void)state;
    static const uint8_t rtrs[] = {0, SW_MPA_RTR_SEND, SW_MPA_RTR_WRITE, SW_MPA_RTR_READ};
    for (size_t i = 0; i < sizeof(rtrs); i++) {
        struct sw_iwarp_config config = usual();
        config.is_initiator = false;
        config.is_held = true;
        config.rtr = rtrs[i];
        struct fixture *f = fixture_with(&config);
        post(f, SW_REQUEST_SEND, 10, 0);
        expect_nothing(f);
        if (rtrs[i] == SW_MPA_RTR_WRITE)
            assert_int_equal(take_write(f, 0, 0, true), SW_IWARP_NOTHING);
        else if (rtrs[i] == SW_MPA_RTR_READ)
            assert_int_equal(take_read(f, 1, 0, 0), SW_IWARP_NOTHING);
        else /* the empty SEND takes no receive where it was agreed on */
            assert_int_equal(take_send(f, SW_RDMAP_SEND, 1, 0, 0, true),
                             rtrs[i] ? SW_IWARP_NOTHING : SW_IWARP_DEMAND);
        if (rtrs[i] == SW_MPA_RTR_READ)
            expect(f, SW_RDMAP_READ_RESPONSE);
        expect(f, SW_RDMAP_SEND);
        expect_nothing(f);
    }
    struct sw_iwarp_config config = usual();
    config.is_initiator = false;
    config.rtr = SW_MPA_RTR_WRITE;
    struct fixture *f = fixture_with(&config);
    assert_int_equal(take_send(f, SW_RDMAP_SEND, 1, 0, 0, true), SW_IWARP_NOTHING);
    expect_terminate(f, SW_TERMINATE_RTR);
}

static void sw_iwarp_admit__hears_a_terminate(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    static const uint8_t body[] = {0x21, 0x02, 0x00, 0x00};
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_TERMINATE), .last = true, .msn = 1};
    post(f, SW_REQUEST_SEND, 10, 0);
    assert_int_equal(take(f, &segment, body, sizeof(body)), SW_IWARP_NOTHING);
    assert_true(f->machine.over && f->machine.by_peer);
    assert_int_equal(f->machine.terminate.cause, 0x2102);
    expect_nothing(f); /* it is not answered */
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
        struct fixture *f = fixture_of();
        uint8_t ulpdu[18] = {cases[i].first, cases[i].second};
        ulpdu[9] = cases[i].queue;
        ulpdu[13] = 1;
        assert_int_equal(sw_iwarp_admit(&f->machine, ulpdu, sizeof(ulpdu), &f->input),
                         SW_IWARP_NOTHING);
        expect_terminate(f, cases[i].cause);
    }
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
        struct fixture *f = fixture_of();
        if (cases[i].kind == SW_DEMAND_SEND)
            take_send(f, SW_RDMAP_SEND, 1, 0, 10, true);
        else if (cases[i].kind == SW_DEMAND_WRITE)
            take_write(f, 0x1000, 10, true);
        else
            take_read(f, 1, 0x1000, 10);
        assert_int_equal(f->input.demand.kind, cases[i].kind);
        conclude(f, cases[i].syndrome, (enum sw_access_fault)cases[i].why);
        expect_terminate(f, cases[i].cause);
        assert_int_equal(f->machine.terminate.ddp_len, cases[i].kind == SW_DEMAND_WRITE ? 14 : 18);
    }
}

static void sw_iwarp_nudge__is_an_empty_write_between_messages(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    post(f, SW_REQUEST_SEND, 300, 0);
    expect(f, SW_RDMAP_SEND); /* begun */
    sw_iwarp_nudge(&f->machine);
    expect(f, SW_RDMAP_SEND);
    assert_true(f->segment.last);
    expect(f, SW_RDMAP_WRITE);
    assert_true(f->segment.last);
    assert_int_equal(f->emission.payload_len, 0);
    expect_nothing(f);
    take_write(f, 0x4000, 0, true); /* it has heard something: nobody sleeps there */
    sw_iwarp_nudge(&f->machine);
    expect_nothing(f);
}

static void sw_iwarp_release__lets_a_responder_speak_first(void **state)
{
    (void)state;
    for (int rtr = 0; rtr < 2; rtr++) {
        struct sw_iwarp_config config = usual();
        config.is_initiator = false;
        config.is_held = true;
        config.rtr = rtr ? SW_MPA_RTR_WRITE : 0;
        struct fixture *f = fixture_with(&config);
        post(f, SW_REQUEST_SEND, 4, 0);
        expect_nothing(f);
        sw_iwarp_release(&f->machine);
        if (rtr)
            expect_nothing(f);
        else
            expect(f, SW_RDMAP_SEND);
    }
}

static void sw_iwarp_unreadable__ends_a_response(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    take_read(f, 1, 0x3000, 1000);
    sw_iwarp_conclude(&f->machine, &f->input.demand, &good);
    expect(f, SW_RDMAP_READ_RESPONSE);
    sw_iwarp_unreadable(&f->machine, SW_ACCESS_FAULT_KEY);
    expect_terminate(f, SW_TERMINATE_READ_STAG);
}

static void sw_iwarp_refuse__is_said_once(void **state)
{
    (void)state;
    struct fixture *f = fixture_of();
    sw_iwarp_refuse(&f->machine, SW_TERMINATE_CRC);
    sw_iwarp_refuse(&f->machine, SW_TERMINATE_FRAME);
    expect_terminate(f, SW_TERMINATE_CRC);
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
        cmocka_unit_test(sw_iwarp_conclude__tells_why),
        cmocka_unit_test(sw_iwarp_nudge__is_an_empty_write_between_messages),
        cmocka_unit_test(sw_iwarp_release__lets_a_responder_speak_first),
        cmocka_unit_test(sw_iwarp_unreadable__ends_a_response),
        cmocka_unit_test(sw_iwarp_refuse__is_said_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
