/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/iwarp/start.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/iwarp/terminate.h"

#define NOW_NS 1000ull
enum { RTR_ALL = SW_MPA_RTR_SEND | SW_MPA_RTR_WRITE | SW_MPA_RTR_READ };

static struct sw_iwarp_start_config usual(void)
{
    return (struct sw_iwarp_start_config){.revision = 2, .rtr = RTR_ALL, .ird = 16, .ord = 16};
}

static size_t carry(struct sw_iwarp_start *from, struct sw_iwarp_start *to)
{
    const size_t len = from->out_len;
    from->out_len = 0;
    return sw_iwarp_start_take(to, from->out, len);
}

/* Both ends up to the reply; the initiator has taken it. */
static void meet(struct sw_iwarp_start *a, const struct sw_iwarp_start_config *asks,
                 struct sw_iwarp_start *b, const struct sw_iwarp_start_config *answers)
{
    sw_iwarp_start_connect(a, asks, NOW_NS);
    sw_iwarp_start_listen(b, answers, NOW_NS);
    assert_int_equal(a->state, SW_IWARP_ASKED);
    carry(a, b);
    assert_int_equal(b->state, SW_IWARP_REQUESTED);
    sw_iwarp_start_accept(b, answers, NOW_NS);
    assert_int_equal(b->state, SW_IWARP_ACCEPTED);
    carry(b, a);
}

static void sw_iwarp_start_connect__opens_and_the_responder_waits(void **state)
{
    (void)state;
    struct sw_iwarp_start a, b;
    const struct sw_iwarp_start_config config = usual();
    meet(&a, &config, &b, &config);
    assert_int_equal(a.state, SW_IWARP_OPEN);
    assert_int_equal(b.state, SW_IWARP_ACCEPTED);
    assert_true(b.due_ns == UINT64_MAX); /* for as long as the initiator likes */
    sw_iwarp_start_first_came(&b);
    assert_int_equal(b.state, SW_IWARP_OPEN);
}

static void sw_iwarp_start_accept__has_a_crc_by_either_wish(void **state)
{
    (void)state;
    for (int wish = 0; wish < 4; wish++) {
        struct sw_iwarp_start a, b;
        struct sw_iwarp_start_config asks = usual(), answers = usual();
        asks.wants_crc = wish & 1;
        answers.wants_crc = wish & 2;
        meet(&a, &asks, &b, &answers);
        assert_int_equal(a.terms.crc, wish != 0);
        assert_int_equal(b.terms.crc, wish != 0);
    }
}

static void sw_iwarp_start_accept__has_large_fpdus_by_both_wishes(void **state)
{
    (void)state;
    for (int wish = 0; wish < 4; wish++) {
        struct sw_iwarp_start a, b;
        struct sw_iwarp_start_config asks = usual(), answers = usual();
        asks.wants_large = wish & 1;
        answers.wants_large = wish & 2;
        meet(&a, &asks, &b, &answers);
        assert_int_equal(a.terms.large, wish == 3);
        assert_int_equal(b.terms.large, wish == 3);
    }
}

static void sw_iwarp_start_accept__agrees_on_depths(void **state)
{
    (void)state;
    struct sw_iwarp_start a, b;
    struct sw_iwarp_start_config asks = usual(), answers = usual();
    asks.ird = 4;
    asks.ord = 32;
    answers.ird = 8;
    answers.ord = 16;
    meet(&a, &asks, &b, &answers);
    assert_int_equal(a.terms.ord, 8); /* no more than the responder takes */
    assert_int_equal(b.terms.ord, 4);
    assert_int_equal(a.terms.ird, 4);
    assert_int_equal(b.terms.ird, 8);
}

static void sw_iwarp_start_accept__agrees_on_one_rtr_that_was_offered(void **state)
{
    (void)state;
    for (uint8_t offered = 1; offered <= RTR_ALL; offered++)
        for (uint8_t taken = 1; taken <= RTR_ALL; taken++) {
            struct sw_iwarp_start a, b;
            struct sw_iwarp_start_config asks = usual(), answers = usual();
            asks.is_peer_to_peer = true;
            asks.rtr = offered;
            answers.rtr = taken;
            meet(&a, &asks, &b, &answers);
            assert_true(b.due_ns == NOW_NS + SW_IWARP_REPLY_NS); /* the RTR is due */
            if (!(offered & taken)) {
                assert_int_equal(a.state, SW_IWARP_REFUSED);
                assert_int_equal(a.cause, SW_TERMINATE_RTR);
                continue;
            }
            assert_int_equal(a.state, SW_IWARP_OPEN);
            assert_int_equal(a.terms.rtr, b.terms.rtr);
            assert_true(a.terms.rtr & offered & taken);
            assert_int_equal(a.terms.rtr & (a.terms.rtr - 1), 0);
        }
}

/* A reply made by hand. */
static void answer_with(struct sw_iwarp_start *a, const struct sw_mpa_frame *reply)
{
    uint8_t bytes[SW_MPA_FRAME_MAX];
    const size_t len = sw_mpa_encode(reply, bytes);
    assert_int_equal(sw_iwarp_start_take(a, bytes, len), len);
}

static void sw_iwarp_start_take__refuses_too_few_and_too_many_reads(void **state)
{
    (void)state;
    struct sw_iwarp_start a;
    struct sw_iwarp_start_config config = usual();
    config.ord_least = 4;
    struct sw_mpa_frame reply = {
        .is_reply = true, .flags = SW_MPA_ENHANCED, .revision = 2, .ird = 3, .ord = 1};
    sw_iwarp_start_connect(&a, &config, NOW_NS);
    answer_with(&a, &reply);
    assert_int_equal(a.state, SW_IWARP_REFUSED);
    assert_int_equal(a.cause, SW_TERMINATE_IRD);
    reply.ird = 4;
    reply.ord = 17; /* more than are taken here */
    sw_iwarp_start_connect(&a, &config, NOW_NS);
    answer_with(&a, &reply);
    assert_int_equal(a.state, SW_IWARP_REFUSED);
    assert_int_equal(a.cause, SW_TERMINATE_IRD);
    reply.ird = reply.ord = SW_MPA_DEPTH_OPEN;
    sw_iwarp_start_connect(&a, &config, NOW_NS);
    answer_with(&a, &reply);
    assert_int_equal(a.state, SW_IWARP_OPEN);
    assert_int_equal(a.terms.ord, 16);
}

static void sw_iwarp_start_take__falls_back_to_an_older_peer(void **state)
{
    (void)state;
    struct sw_iwarp_start a, b;
    struct sw_iwarp_start_config asks = usual(), old = usual();
    old.revision = 1;
    meet(&a, &asks, &b, &old);
    assert_int_equal(a.state, SW_IWARP_OLDER);
    asks.revision = 1;
    meet(&a, &asks, &b, &old); /* on a new connection */
    assert_int_equal(a.state, SW_IWARP_OPEN);
    const struct sw_iwarp_start_config newer = usual();
    meet(&a, &asks, &b, &newer); /* who knows both answers as it was asked */
    assert_int_equal(a.state, SW_IWARP_OPEN);
    assert_int_equal(a.peer.revision, 1);
    assert_int_equal(a.terms.rtr, 0);
}

static void sw_iwarp_start_reject__tells_the_initiator(void **state)
{
    (void)state;
    struct sw_iwarp_start a, b;
    const struct sw_iwarp_start_config config = usual();
    sw_iwarp_start_connect(&a, &config, NOW_NS);
    sw_iwarp_start_listen(&b, &config, NOW_NS);
    carry(&a, &b);
    sw_iwarp_start_reject(&b, (const uint8_t *)"not now", 8);
    assert_int_equal(b.state, SW_IWARP_REJECTED);
    carry(&b, &a);
    assert_int_equal(a.state, SW_IWARP_REJECTED);
    assert_int_equal(a.peer.private_len, 8);
    assert_string_equal((const char *)a.peer.private_data, "not now");
    assert_true(a.due_ns == UINT64_MAX);
}

static void sw_iwarp_start_take__takes_no_markers(void **state)
{
    (void)state;
    struct sw_iwarp_start a, b;
    const struct sw_iwarp_start_config config = usual();
    sw_iwarp_start_connect(&a, &config, NOW_NS);
    answer_with(&a, &(struct sw_mpa_frame){.is_reply = true,
                                           .flags = SW_MPA_ENHANCED | SW_MPA_MARKERS,
                                           .revision = 2});
    assert_int_equal(a.failure, SW_IWARP_FAILURE_MARKERS);
    sw_iwarp_start_connect(&a, &config, NOW_NS);
    a.out[16] |= SW_MPA_MARKERS;
    sw_iwarp_start_listen(&b, &config, NOW_NS);
    carry(&a, &b);
    assert_int_equal(b.failure, SW_IWARP_FAILURE_MARKERS);
    carry(&b, &a); /* which is rejected */
    assert_int_equal(a.state, SW_IWARP_REJECTED);
}

static void sw_iwarp_start_take__takes_a_frame_cut_anywhere(void **state)
{
    (void)state;
    struct sw_iwarp_start_config config = usual();
    config.private_data = (const uint8_t *)"words";
    config.private_len = 5;
    for (size_t cut = 0; cut <= 29; cut++) {
        struct sw_iwarp_start a, b;
        sw_iwarp_start_connect(&a, &config, NOW_NS);
        sw_iwarp_start_listen(&b, &config, NOW_NS);
        assert_int_equal(a.out_len, 29);
        assert_int_equal(sw_iwarp_start_take(&b, a.out, cut), cut);
        assert_int_equal(b.state, cut < 29 ? SW_IWARP_AWAITED : SW_IWARP_REQUESTED);
        assert_int_equal(sw_iwarp_start_take(&b, a.out + cut, 29 - cut), 29 - cut);
        assert_int_equal(b.state, SW_IWARP_REQUESTED);
        assert_memory_equal(b.peer.private_data, "words", 5);
    }
}

static void sw_iwarp_start_take__leaves_what_is_behind_a_reply(void **state)
{
    (void)state;
    struct sw_iwarp_start a, b;
    const struct sw_iwarp_start_config config = usual();
    sw_iwarp_start_connect(&a, &config, NOW_NS);
    sw_iwarp_start_listen(&b, &config, NOW_NS);
    carry(&a, &b);
    sw_iwarp_start_accept(&b, &config, NOW_NS);
    memcpy(b.out + b.out_len, "fpdu", 4); /* siw sends before the initiator has */
    assert_int_equal(sw_iwarp_start_take(&a, b.out, b.out_len + 4u), b.out_len);
    assert_int_equal(a.state, SW_IWARP_OPEN);
}

static void sw_iwarp_start_take__refuses_what_is_behind_a_request(void **state)
{
    (void)state;
    struct sw_iwarp_start a, b;
    const struct sw_iwarp_start_config config = usual();
    for (int apart = 0; apart < 2; apart++) {
        sw_iwarp_start_connect(&a, &config, NOW_NS);
        sw_iwarp_start_listen(&b, &config, NOW_NS);
        sw_iwarp_start_take(&b, a.out, a.out_len + (apart ? 0u : 1u));
        if (apart)
            sw_iwarp_start_take(&b, a.out, 1);
        assert_int_equal(b.failure, SW_IWARP_FAILURE_MALFORMED);
    }
    sw_iwarp_start_listen(&b, &config, NOW_NS);
    sw_iwarp_start_take(&b, (const uint8_t *)"GET / HTTP/1.1", 14);
    assert_int_equal(b.failure, SW_IWARP_FAILURE_MALFORMED);
}

static void sw_iwarp_start_tick__waits_as_long_as_siw(void **state)
{
    (void)state;
    struct sw_iwarp_start s;
    const struct sw_iwarp_start_config config = usual();
    sw_iwarp_start_connect(&s, &config, NOW_NS);
    assert_true(s.due_ns == NOW_NS + 10000000000ull);
    sw_iwarp_start_tick(&s, s.due_ns - 1);
    assert_int_equal(s.state, SW_IWARP_ASKED);
    sw_iwarp_start_tick(&s, s.due_ns);
    assert_int_equal(s.failure, SW_IWARP_FAILURE_TIMEOUT);
    sw_iwarp_start_listen(&s, &config, NOW_NS);
    assert_true(s.due_ns == NOW_NS + 5000000000ull);
    sw_iwarp_start_tick(&s, s.due_ns);
    assert_int_equal(s.failure, SW_IWARP_FAILURE_TIMEOUT);
}

static void sw_iwarp_start_closed__fails_what_is_not_open(void **state)
{
    (void)state;
    struct sw_iwarp_start a, b;
    const struct sw_iwarp_start_config config = usual();
    sw_iwarp_start_connect(&a, &config, NOW_NS);
    sw_iwarp_start_closed(&a);
    assert_int_equal(a.failure, SW_IWARP_FAILURE_CLOSED);
    meet(&a, &config, &b, &config);
    sw_iwarp_start_closed(&a);
    assert_int_equal(a.state, SW_IWARP_OPEN);
    sw_iwarp_start_closed(&b);
    assert_int_equal(b.failure, SW_IWARP_FAILURE_CLOSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_iwarp_start_connect__opens_and_the_responder_waits),
        cmocka_unit_test(sw_iwarp_start_accept__has_a_crc_by_either_wish),
        cmocka_unit_test(sw_iwarp_start_accept__has_large_fpdus_by_both_wishes),
        cmocka_unit_test(sw_iwarp_start_accept__agrees_on_depths),
        cmocka_unit_test(sw_iwarp_start_accept__agrees_on_one_rtr_that_was_offered),
        cmocka_unit_test(sw_iwarp_start_take__refuses_too_few_and_too_many_reads),
        cmocka_unit_test(sw_iwarp_start_take__falls_back_to_an_older_peer),
        cmocka_unit_test(sw_iwarp_start_reject__tells_the_initiator),
        cmocka_unit_test(sw_iwarp_start_take__takes_no_markers),
        cmocka_unit_test(sw_iwarp_start_take__takes_a_frame_cut_anywhere),
        cmocka_unit_test(sw_iwarp_start_take__leaves_what_is_behind_a_reply),
        cmocka_unit_test(sw_iwarp_start_take__refuses_what_is_behind_a_request),
        cmocka_unit_test(sw_iwarp_start_tick__waits_as_long_as_siw),
        cmocka_unit_test(sw_iwarp_start_closed__fails_what_is_not_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
