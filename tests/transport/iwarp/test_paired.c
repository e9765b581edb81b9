/* SPDX-License-Identifier: BSD-2-Clause */
/* Two machines of RoCE queue pairs, and what each sends given to the other. */
#include "transport/iwarp/iwarp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/bytes.h"
#include "wire/iwarp/pairing.h"

enum { RING = 16, FPDU_BYTES = 256 };
enum { ACK = 0x1f, RNR = 0x20, INVALID = 0x61, ACCESS = 0x62 };

struct end {
    struct sw_iwarp machine;
    struct sw_request ring[RING];
    uint32_t receives;                                    /* posted */
    uint8_t syndrome;                                     /* of what is asked of memory */
    uint32_t sends, imms, imm_be, writes, atomics, reads; /* carried out */
    uint32_t words, flushes, flush_type;
    uint64_t word;
};

static struct end ends[2];

static void begin(uint8_t rnr_retry)
{
    memset(ends, 0, sizeof(ends));
    for (int i = 0; i < 2; i++) {
        const struct sw_iwarp_config config = {.ird = 4,
                                               .ord = 2,
                                               .fpdu_max = FPDU_BYTES,
                                               .is_initiator = i == 0,
                                               .is_paired = true,
                                               .has_persistence = true,
                                               .rnr_retry = rnr_retry,
                                               .rnr_timer = 12};
        sw_iwarp_init(&ends[i].machine, &config, ends[i].ring, RING);
        ends[i].receives = RING;
        ends[i].syndrome = ACK;
    }
}

static void post(uint8_t kind, uint32_t len_bytes, uint8_t flags)
{
    const struct sw_request request = {.kind = kind,
                                       .flags = flags,
                                       .len_bytes = len_bytes,
                                       .rkey = 0x1234,
                                       .remote_addr = 0x10000,
                                       .imm_or_key = 0x01020304};
    assert_true(sw_iwarp_post(&ends[0].machine, &request));
}

static uint8_t carry_out(struct end *end, const struct sw_demand *demand)
{
    const bool takes = demand->kind == SW_DEMAND_SEND ? demand->first : demand->has_imm;
    if (takes && !end->receives)
        return RNR;
    end->receives -= takes;
    if (demand->kind != SW_DEMAND_SEND && end->syndrome != ACK)
        return end->syndrome;
    if (demand->has_imm && demand->last) {
        end->imms++;
        end->imm_be = demand->imm_be;
    }
    end->sends += demand->kind == SW_DEMAND_SEND && demand->last;
    end->writes += demand->kind == SW_DEMAND_WRITE && demand->last && !demand->has_imm;
    end->reads += demand->kind == SW_DEMAND_READ;
    end->atomics += demand->kind == SW_DEMAND_FETCH_ADD;
    if (demand->kind == SW_DEMAND_ATOMIC_WRITE) {
        end->words++;
        end->word = demand->compare_add;
    }
    if (demand->kind == SW_DEMAND_FLUSH) {
        end->flushes++;
        end->flush_type = demand->flush_type;
        assert_int_equal(demand->rkey, 0x1234);
        assert_int_equal(demand->addr, 0x10000);
        assert_int_equal(demand->total, 5000);
    }
    return ACK;
}

/* All that one end has to say, taken by the other. */
static void carry(struct end *from, struct end *to)
{
    struct sw_iwarp_emission emission;
    uint8_t ulpdu[FPDU_BYTES];
    while (sw_iwarp_next(&from->machine, &emission)) {
        struct sw_iwarp_input input = {0};
        memset(ulpdu, 0, sizeof(ulpdu));
        memcpy(ulpdu, emission.head + SW_FPDU_LENGTH_BYTES, emission.head_len - 2u);
        if (sw_iwarp_admit(&to->machine, ulpdu, sw_iwarp_ulpdu_len(&emission), &input) !=
            SW_IWARP_DEMAND)
            continue;
        const struct sw_outcome outcome = {.syndrome = carry_out(to, &input.demand)};
        sw_iwarp_conclude(&to->machine, &input.demand, &outcome);
    }
}

static void exchange(void)
{
    for (int i = 0; i < 4; i++) {
        carry(&ends[0], &ends[1]);
        sw_iwarp_tell(&ends[1].machine);
        carry(&ends[1], &ends[0]);
    }
}

static void paired__a_send_is_complete_when_it_was_taken(void **state)
{
    (void)state;
    begin(7);
    post(SW_REQUEST_SEND, 1000, 0);
    post(SW_REQUEST_WRITE, 10, 0);
    carry(&ends[0], &ends[1]);
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 0);
    assert_int_equal(sw_iwarp_untold(&ends[1].machine), 2);
    carry(&ends[1], &ends[0]); /* says nothing of itself */
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 0);
    sw_iwarp_tell(&ends[1].machine);
    carry(&ends[1], &ends[0]);
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 2);
}

static void paired__immediates_of_sends_and_writes(void **state)
{
    (void)state;
    begin(7);
    post(SW_REQUEST_SEND, 600, SW_REQUEST_IMM);
    exchange();
    assert_int_equal(ends[1].sends, 1);
    assert_int_equal(ends[1].imm_be, 0x01020304);
    post(SW_REQUEST_WRITE, 600, SW_REQUEST_IMM);
    post(SW_REQUEST_SEND, 1, 0);
    exchange();
    assert_int_equal(ends[1].imms, 2);
    assert_int_equal(ends[1].sends, 2);
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 3);
}

static void paired__without_a_receive_all_behind_it_waits(void **state)
{
    (void)state;
    begin(7);
    ends[1].receives = 1;
    post(SW_REQUEST_SEND, 600, SW_REQUEST_IMM);
    post(SW_REQUEST_SEND, 600, SW_REQUEST_IMM); /* no receive */
    post(SW_REQUEST_WRITE, 10, 0);
    post(SW_REQUEST_READ, 10, 0);
    post(SW_REQUEST_FETCH_ADD, 8, 0);
    exchange();
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 1);
    assert_true(ends[0].machine.paired.waits);
    assert_int_equal(ends[0].machine.paired.rnr_timer, 12);
    assert_int_equal(ends[0].machine.read_count, 0);
    assert_int_equal(ends[1].writes + ends[1].reads + ends[1].atomics, 0);
    sw_iwarp_resume(&ends[0].machine);
    exchange(); /* still none */
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 1);
    assert_int_equal(ends[0].machine.paired.rnr_tries, 2);
    ends[1].receives = 1;
    sw_iwarp_resume(&ends[0].machine);
    exchange();
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 5);
    assert_int_equal(ends[1].sends, 2);
    assert_int_equal(ends[1].writes, 1);
    assert_int_equal(ends[1].reads, 1);
    assert_int_equal(ends[1].atomics, 1);
    assert_false(ends[0].machine.over || ends[1].machine.over);
}

static void paired__a_write_with_immediate_is_written_again(void **state)
{
    (void)state;
    begin(7);
    ends[1].receives = 0;
    post(SW_REQUEST_WRITE, 10, SW_REQUEST_IMM);
    exchange();
    ends[1].receives = 1;
    sw_iwarp_resume(&ends[0].machine);
    exchange();
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 1);
    assert_int_equal(ends[1].writes, 2);
    assert_int_equal(ends[1].imms, 1);
}

static void paired__tries_are_counted(void **state)
{
    (void)state;
    begin(1);
    ends[1].receives = 0;
    post(SW_REQUEST_SEND, 1, 0);
    exchange();
    assert_false(ends[0].machine.paired.is_exhausted);
    sw_iwarp_resume(&ends[0].machine);
    exchange();
    assert_true(ends[0].machine.paired.is_exhausted);
}

static void paired__what_came_before_a_fault_is_answered(void **state)
{
    (void)state;
    begin(7);
    post(SW_REQUEST_SEND, 1, 0);
    post(SW_REQUEST_READ, 600, 0);
    carry(&ends[0], &ends[1]);
    ends[1].syndrome = ACCESS;
    post(SW_REQUEST_WRITE, 10, 0);
    carry(&ends[0], &ends[1]);
    assert_true(ends[1].machine.over);
    carry(&ends[1], &ends[0]);
    assert_true(ends[0].machine.over && ends[0].machine.by_peer);
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 2);
}

/* Both are answered, and the answer goes nowhere. */
static void paired__flush_and_atomic_write(void **state)
{
    (void)state;
    const uint64_t word = 0x1122334455667788u;
    begin(7);
    const struct sw_request flush = {.kind = SW_REQUEST_FLUSH,
                                     .len_bytes = 5000,
                                     .rkey = 0x1234,
                                     .remote_addr = 0x10000,
                                     .flush_type = 3};
    const struct sw_request write = {.kind = SW_REQUEST_ATOMIC_WRITE,
                                     .len_bytes = 8,
                                     .rkey = 0x1234,
                                     .remote_addr = 0x10000,
                                     .compare_add = word};
    assert_true(sw_iwarp_post(&ends[0].machine, &flush));
    assert_true(sw_iwarp_post(&ends[0].machine, &write));
    carry(&ends[0], &ends[1]);
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 0);
    assert_int_equal(ends[0].machine.read_count, 2);
    exchange();
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 2);
    assert_int_equal(ends[1].flushes, 1);
    assert_int_equal(ends[1].flush_type, 3);
    assert_int_equal(ends[1].words, 1);
    assert_true(ends[1].word == word);
    ends[0].machine.config.has_persistence = false; /* a peer that has not said so */
    assert_false(sw_iwarp_supports(&ends[0].machine, &flush));
    assert_false(sw_iwarp_supports(&ends[0].machine, &write));
}

/* The first FPDU of an answer is void; what follows it is not looked at up to the Terminate. */
static void paired__behind_a_void_answer_only_the_terminate_counts(void **state)
{
    (void)state;
    struct sw_iwarp_emission emission;
    begin(7);
    post(SW_REQUEST_READ, 600, 0);
    carry(&ends[0], &ends[1]);
    const struct sw_request send = {.kind = SW_REQUEST_SEND, .len_bytes = 1};
    assert_true(sw_iwarp_post(&ends[1].machine, &send));
    assert_true(sw_iwarp_next(&ends[1].machine, &emission)); /* the count of what was taken */
    struct sw_iwarp_input input;
    sw_iwarp_admit(&ends[0].machine, emission.head + SW_FPDU_LENGTH_BYTES,
                   sw_iwarp_ulpdu_len(&emission), &input);
    assert_true(sw_iwarp_next(&ends[1].machine, &emission));
    uint8_t ulpdu[FPDU_BYTES] = {0};
    memcpy(ulpdu, emission.head + SW_FPDU_LENGTH_BYTES, emission.head_len - 2u);
    sw_iwarp_take_void(&ends[0].machine, ulpdu, sw_iwarp_ulpdu_len(&emission));
    assert_false(ends[0].machine.over);
    carry(&ends[1], &ends[0]); /* the rest of the answer, and the SEND */
    assert_int_equal(ends[0].sends, 0);
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 0);
    sw_iwarp_unreadable(&ends[1].machine, SW_ACCESS_FAULT_KEY);
    carry(&ends[1], &ends[0]);
    assert_true(ends[0].machine.over && ends[0].machine.by_peer);
    assert_int_equal(ends[0].machine.terminate.cause, SW_TERMINATE_READ_STAG);
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 0);
}

static void paired__nothing_but_an_answer_is_void(void **state)
{
    (void)state;
    struct sw_iwarp_emission emission;
    begin(7);
    post(SW_REQUEST_WRITE, 10, 0);
    assert_true(sw_iwarp_next(&ends[0].machine, &emission));
    uint8_t ulpdu[FPDU_BYTES] = {0};
    memcpy(ulpdu, emission.head + SW_FPDU_LENGTH_BYTES, emission.head_len - 2u);
    sw_iwarp_take_void(&ends[1].machine, ulpdu, sw_iwarp_ulpdu_len(&emission));
    assert_true(ends[1].machine.over);
}

static void paired__an_invalid_request_is_told_as_such(void **state)
{
    (void)state;
    begin(7);
    ends[1].syndrome = INVALID;
    post(SW_REQUEST_WRITE, 10, 0);
    exchange();
    assert_int_equal(ends[0].machine.terminate.cause, SW_TERMINATE_UNSPECIFIED);
}

static void paired__last_words_are_the_count_and_a_farewell(void **state)
{
    (void)state;
    struct sw_iwarp_emission emission;
    begin(7);
    post(SW_REQUEST_SEND, 1, 0);
    carry(&ends[0], &ends[1]);
    sw_iwarp_unreadable(&ends[0].machine, SW_ACCESS_FAULT_KEY); /* a Terminate is one, too */
    assert_true(sw_iwarp_say_last(&ends[0].machine, &emission));
    assert_int_equal(emission.head[3] & 0xf, SW_RDMAP_TERMINATE);
    assert_false(sw_iwarp_say_last(&ends[0].machine, &emission));
    begin(7);
    post(SW_REQUEST_SEND, 1, 0);
    carry(&ends[0], &ends[1]);
    for (int i = 0; sw_iwarp_say_last(&ends[1].machine, &emission); i++) {
        struct sw_iwarp_input input;
        assert_true(i < 2);
        sw_iwarp_admit(&ends[0].machine, emission.head + SW_FPDU_LENGTH_BYTES,
                       sw_iwarp_ulpdu_len(&emission), &input);
    }
    assert_int_equal(sw_iwarp_done(&ends[0].machine), 1);
    assert_true(ends[0].machine.paired.has_left);
}

static void paired__a_paused_one_begins_nothing(void **state)
{
    (void)state;
    begin(7);
    post(SW_REQUEST_SEND, 1, 0);
    exchange();
    sw_iwarp_pause(&ends[0].machine, true, 1);
    post(SW_REQUEST_SEND, 1, 0);
    exchange();
    assert_int_equal(ends[1].sends, 1);
    sw_iwarp_pause(&ends[0].machine, false, 0);
    exchange();
    assert_int_equal(ends[1].sends, 2);
}

/* A note, as from the peer; whether it was refused. */
static bool is_note_refused(uint8_t kind, uint32_t value)
{
    const struct sw_pairing_note note = {.kind = kind, .value = value};
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_IMMEDIATE), .last = true, .msn = 1};
    uint8_t ulpdu[SW_DDP_UNTAGGED_BYTES + SW_PAIRING_NOTE_BYTES];
    struct sw_iwarp_input input;
    begin(7);
    post(SW_REQUEST_SEND, 1, 0);
    carry(&ends[0], &ends[1]);
    sw_ddp_encode(&segment, ulpdu);
    sw_pairing_note_encode(&note, ulpdu + SW_DDP_UNTAGGED_BYTES);
    sw_iwarp_admit(&ends[0].machine, ulpdu, sizeof(ulpdu), &input);
    carry(&ends[0], &ends[1]);
    return ends[0].machine.over;
}

static void paired__a_peer_cannot_take_what_was_not_sent(void **state)
{
    (void)state;
    assert_false(is_note_refused(SW_PAIRING_TAKEN, 1));
    assert_true(is_note_refused(SW_PAIRING_TAKEN, 2));
    assert_false(is_note_refused(SW_PAIRING_TAKEN, UINT32_MAX)); /* an old one */
    assert_false(is_note_refused(SW_PAIRING_RNR, 0));
    assert_true(is_note_refused(SW_PAIRING_RNR, 1)); /* nothing was asked that it could refuse */
    assert_true(is_note_refused(SW_PAIRING_NOTE_KINDS, 0));
    assert_true(is_note_refused(0xff, 0));
}

static void sw_pairing_decode__what_was_encoded_and_nothing_else(void **state)
{
    (void)state;
    const struct sw_pairing pairing = {.kind = SW_PAIRING_REPLY,
                                       .skills = SW_PAIRING_PERSISTENCE | 0x4000,
                                       .own_qpn = 0x123456,
                                       .peer_qpn = 0x654321,
                                       .own_psn = 0xabcdef,
                                       .peer_psn = SW_PAIRING_PSN_OPEN,
                                       .nonce = 0x1122334455667788ull};
    struct sw_pairing out;
    uint8_t bytes[SW_PAIRING_BYTES + 1] = {0};
    sw_pairing_encode(&pairing, bytes);
    assert_true(sw_pairing_decode(bytes, SW_PAIRING_BYTES, &out));
    assert_int_equal(out.kind, pairing.kind);
    assert_int_equal(out.skills, pairing.skills);
    assert_int_equal(out.own_qpn, pairing.own_qpn);
    assert_int_equal(out.peer_qpn, pairing.peer_qpn);
    assert_int_equal(out.own_psn, pairing.own_psn);
    assert_int_equal(out.peer_psn, pairing.peer_psn);
    assert_int_equal(out.nonce, pairing.nonce);
    assert_false(sw_pairing_decode(bytes, SW_PAIRING_BYTES - 1, &out));
    assert_false(sw_pairing_decode(bytes, SW_PAIRING_BYTES + 1, &out));
    for (int i = 0; i < 6; i++) {
        bytes[i] ^= 0x80;
        assert_false(sw_pairing_decode(bytes, SW_PAIRING_BYTES, &out));
        bytes[i] ^= 0x80;
    }
}

static void sw_pairing_agrees__if_all_of_it_does(void **state)
{
    (void)state;
    const struct sw_pairing request = {.kind = SW_PAIRING_REQUEST,
                                       .own_qpn = 1,
                                       .peer_qpn = 2,
                                       .own_psn = 3,
                                       .peer_psn = 4,
                                       .nonce = 5};
    const struct sw_pairing right = {.kind = SW_PAIRING_REPLY,
                                     .own_qpn = 2,
                                     .peer_qpn = 1,
                                     .own_psn = 4,
                                     .peer_psn = 3,
                                     .nonce = 5};
    struct sw_pairing reply = right;
    assert_true(sw_pairing_agrees(&request, &reply));
    reply.own_psn = SW_PAIRING_PSN_OPEN; /* it is in RTR */
    assert_true(sw_pairing_agrees(&request, &reply));
    struct sw_pairing wrong[] = {right, right, right, right, right, right};
    wrong[0].kind = SW_PAIRING_LATER;
    wrong[1].own_qpn++;
    wrong[2].peer_qpn++;
    wrong[3].own_psn++;
    wrong[4].peer_psn = SW_PAIRING_PSN_OPEN;
    wrong[5].nonce++;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(sw_pairing_agrees(&request, &wrong[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paired__a_send_is_complete_when_it_was_taken),
        cmocka_unit_test(paired__immediates_of_sends_and_writes),
        cmocka_unit_test(paired__without_a_receive_all_behind_it_waits),
        cmocka_unit_test(paired__a_write_with_immediate_is_written_again),
        cmocka_unit_test(paired__tries_are_counted),
        cmocka_unit_test(paired__what_came_before_a_fault_is_answered),
        cmocka_unit_test(paired__flush_and_atomic_write),
        cmocka_unit_test(paired__behind_a_void_answer_only_the_terminate_counts),
        cmocka_unit_test(paired__nothing_but_an_answer_is_void),
        cmocka_unit_test(paired__an_invalid_request_is_told_as_such),
        cmocka_unit_test(paired__last_words_are_the_count_and_a_farewell),
        cmocka_unit_test(paired__a_paused_one_begins_nothing),
        cmocka_unit_test(paired__a_peer_cannot_take_what_was_not_sent),
        cmocka_unit_test(sw_pairing_agrees__if_all_of_it_does),
        cmocka_unit_test(sw_pairing_decode__what_was_encoded_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
