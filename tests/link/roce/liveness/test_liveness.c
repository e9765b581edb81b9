/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether the process at the other end lives: the machine, and what is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "link/roce/liveness/liveness.h"
#include "wire/liveness.h"

#define MS 1000000ull
#define S (1000 * MS)

static struct sw_liveness l;
static uint64_t now_ns;

static void begin(bool calls)
{
    sw_liveness_init(&l, calls);
    now_ns = 100 * S;
}

static enum sw_liveness_step take(enum sw_liveness_event event)
{
    return sw_liveness_take(&l, event, now_ns);
}

/* The time that the machine wants, which must be soon. */
static enum sw_liveness_step wait_for(uint64_t at_most_ns)
{
    assert_true(l.due_ns >= now_ns && l.due_ns - now_ns <= at_most_ns);
    now_ns = l.due_ns;
    return take(SW_LIVENESS_TIME);
}

static void stand(bool calls)
{
    begin(calls);
    if (calls) {
        assert_int_equal(take(SW_LIVENESS_MET), SW_LIVENESS_ASK);
        assert_int_equal(take(SW_LIVENESS_TOLD), SW_LIVENESS_CALL);
    }
    assert_int_equal(take(SW_LIVENESS_PROVEN), SW_LIVENESS_NOTHING);
    assert_int_equal(l.state, SW_LIVENESS_UP);
    assert_true(l.due_ns == SW_LIVENESS_NEVER);
}

static uint32_t asked_in_all(uint64_t for_ns)
{
    uint32_t asked = 0;
    for (uint64_t end_ns = now_ns + for_ns; l.due_ns < end_ns;)
        asked += wait_for(100 * S) == SW_LIVENESS_ASK;
    return asked;
}

static void asks__a_few_times_whoever_that_is(void **state)
{
    (void)state;
    begin(true);
    assert_int_equal(take(SW_LIVENESS_JOINED), SW_LIVENESS_ASK);
    assert_true(asked_in_all(1000 * S) <= 5);
    assert_int_equal(l.state, SW_LIVENESS_IDLE);
    assert_int_equal(take(SW_LIVENESS_JOINED), SW_LIVENESS_NOTHING); /* another queue pair */
    assert_int_equal(take(SW_LIVENESS_MET), SW_LIVENESS_ASK);
    const uint32_t asked = asked_in_all(1000 * S);
    assert_true(asked > 10 && asked < 200);
}

static void asks__at_once_when_invited(void **state)
{
    (void)state;
    begin(true);
    assert_int_equal(take(SW_LIVENESS_JOINED), SW_LIVENESS_ASK);
    assert_int_equal(take(SW_LIVENESS_MET), SW_LIVENESS_ASK);
    begin(false);
    assert_int_equal(take(SW_LIVENESS_JOINED), SW_LIVENESS_INVITE);
    assert_int_equal(take(SW_LIVENESS_JOINED), SW_LIVENESS_NOTHING);
    assert_int_equal(take(SW_LIVENESS_MET), SW_LIVENESS_NOTHING); /* it waits to be called */
    assert_int_equal(take(SW_LIVENESS_PROVEN), SW_LIVENESS_NOTHING);
    assert_int_equal(l.state, SW_LIVENESS_UP);
}

static void answers__count_only_while_asked_for(void **state)
{
    (void)state;
    begin(true);
    assert_int_equal(take(SW_LIVENESS_TOLD), SW_LIVENESS_NOTHING);
    stand(true);
    assert_int_equal(take(SW_LIVENESS_TOLD), SW_LIVENESS_NOTHING);
    assert_int_equal(l.state, SW_LIVENESS_UP);
}

static void connection__that_cannot_be_had_is_tried_again(void **state)
{
    (void)state;
    static const enum sw_liveness_event failures[] = {SW_LIVENESS_REFUSED, SW_LIVENESS_LOST,
                                                      SW_LIVENESS_ENDED};
    for (int i = 0; i < 3; i++) {
        begin(true);
        take(SW_LIVENESS_MET);
        take(SW_LIVENESS_TOLD);
        assert_int_equal(take(failures[i]), SW_LIVENESS_HANG_UP);
        assert_int_equal(l.state, SW_LIVENESS_IDLE); /* not dead: it never was there */
        assert_false(sw_liveness_is_excused(&l, now_ns));
        assert_int_equal(wait_for(70 * S), SW_LIVENESS_ASK);
    }
}

static void death__is_an_end_and_nobody_listening(void **state)
{
    (void)state;
    for (int calls = 0; calls < 2; calls++) {
        stand(calls);
        assert_int_equal(take(SW_LIVENESS_ENDED), SW_LIVENESS_CALL);
        assert_true(sw_liveness_is_excused(&l, now_ns));
        assert_int_equal(take(SW_LIVENESS_REFUSED), SW_LIVENESS_BURY);
        for (int event = SW_LIVENESS_JOINED; event <= SW_LIVENESS_TIME; event++)
            assert_int_equal(take((enum sw_liveness_event)event), SW_LIVENESS_NOTHING);
        assert_int_equal(l.state, SW_LIVENESS_DEAD);
        assert_false(sw_liveness_is_excused(&l, now_ns));
    }
}

/* A process that dies closes one socket after the other. */
static void death__is_looked_for_again_where_somebody_listened_still(void **state)
{
    (void)state;
    stand(false);
    take(SW_LIVENESS_ENDED);
    for (int i = 0; i < 3; i++) {
        take(SW_LIVENESS_TAKEN);
        assert_int_equal(take(SW_LIVENESS_ENDED), SW_LIVENESS_HANG_UP);
        assert_int_equal(wait_for(50 * MS), SW_LIVENESS_CALL);
    }
    assert_int_equal(take(SW_LIVENESS_REFUSED), SW_LIVENESS_BURY);
}

static void hiccup__is_no_death(void **state)
{
    (void)state;
    stand(true);
    take(SW_LIVENESS_ENDED);
    assert_int_equal(take(SW_LIVENESS_PROVEN), SW_LIVENESS_NOTHING);
    assert_int_equal(l.state, SW_LIVENESS_UP);
    stand(false); /* who is called */
    take(SW_LIVENESS_ENDED);
    assert_int_equal(take(SW_LIVENESS_TAKEN), SW_LIVENESS_NOTHING);
    assert_int_equal(wait_for(S), SW_LIVENESS_HANG_UP);
    assert_int_equal(l.state, SW_LIVENESS_IDLE);
    take(SW_LIVENESS_PROVEN); /* it has been called again */
    assert_int_equal(l.state, SW_LIVENESS_UP);
}

/* Neither dead nor known to live. */
static void silence__of_a_host_ends_patience(void **state)
{
    (void)state;
    stand(true);
    assert_int_equal(take(SW_LIVENESS_LOST), SW_LIVENESS_CALL);
    assert_int_equal(wait_for(5 * S), SW_LIVENESS_HANG_UP);
    assert_int_equal(l.state, SW_LIVENESS_IDLE);
    assert_false(sw_liveness_is_excused(&l, now_ns));
    assert_int_equal(wait_for(70 * S), SW_LIVENESS_ASK);
}

static void another__at_its_port_is_not_waited_for(void **state)
{
    (void)state;
    stand(true);
    take(SW_LIVENESS_ENDED);
    for (int i = 0; l.state == SW_LIVENESS_CHECKING; i++) {
        assert_true(i < 1000);
        if (take(SW_LIVENESS_ENDED) == SW_LIVENESS_HANG_UP && l.state == SW_LIVENESS_CHECKING)
            wait_for(S);
    }
    assert_int_equal(l.state, SW_LIVENESS_IDLE);
    assert_true(now_ns < 105 * S);
}

static void farewell__is_no_death(void **state)
{
    (void)state;
    for (int calls = 0; calls < 2; calls++) {
        stand(calls);
        assert_int_equal(take(SW_LIVENESS_FAREWELL), SW_LIVENESS_HANG_UP);
        assert_int_equal(l.state, SW_LIVENESS_IDLE);
        assert_true(l.due_ns == SW_LIVENESS_NEVER);
    }
}

static void excuse__ends_with_an_answer_to_a_later_question(void **state)
{
    (void)state;
    stand(true);
    const uint64_t sent_ns = now_ns;
    assert_true(sw_liveness_is_excused(&l, sent_ns));
    now_ns += 10 * MS;
    assert_true(sw_liveness_ping(&l, now_ns));
    assert_false(sw_liveness_ping(&l, now_ns + 1)); /* one at a time */
    sw_liveness_pong(&l, now_ns + 1, 0, now_ns);    /* to something else */
    assert_true(sw_liveness_is_excused(&l, sent_ns));
    sw_liveness_pong(&l, now_ns, 0, now_ns);
    assert_false(sw_liveness_is_excused(&l, sent_ns)); /* it ran and did not answer */
    assert_true(sw_liveness_is_excused(&l, now_ns + 1));
    assert_true(sw_liveness_ping(&l, now_ns + MS));
    sw_liveness_pong(&l, 0, 0, now_ns);
    assert_true(sw_liveness_is_excused(&l, now_ns + 1));
}

static void excuse__needs_a_connection(void **state)
{
    (void)state;
    begin(true);
    take(SW_LIVENESS_JOINED);
    assert_false(sw_liveness_is_excused(&l, now_ns));
    take(SW_LIVENESS_TOLD);
    assert_false(sw_liveness_is_excused(&l, now_ns));
    assert_false(sw_liveness_ping(&l, now_ns));
}

/* It gets a processor now and then: also when it is asked for the first time. */
static void excuse__does_not_end_with_a_late_answer(void **state)
{
    (void)state;
    stand(true);
    const uint64_t sent_ns = now_ns;
    static const uint64_t took_ns[] = {640 * MS, 250 * MS, 500 * MS, 60 * MS, MS};
    for (int i = 0; i < 5; i++) {
        const uint64_t pinged_ns = now_ns;
        assert_true(sw_liveness_ping(&l, pinged_ns));
        now_ns += took_ns[i];
        sw_liveness_pong(&l, pinged_ns, MS, now_ns);
        assert_int_equal(sw_liveness_is_excused(&l, sent_ns), took_ns[i] != MS);
    }
}

/* The other host is far away. */
static void excuse__ends_with_an_answer_that_takes_a_few_round_trips(void **state)
{
    (void)state;
    stand(true);
    assert_true(sw_liveness_ping(&l, now_ns));
    sw_liveness_pong(&l, now_ns, 100 * MS, now_ns + 300 * MS);
    assert_false(sw_liveness_is_excused(&l, now_ns));
}

/* A process without a processor answers questions late, too. */
static void meeting__lasts_for_a_while_before_the_first_connection(void **state)
{
    (void)state;
    for (int calls = 0; calls < 2; calls++) {
        begin(calls);
        assert_false(sw_liveness_is_meeting(&l, now_ns));
        take(SW_LIVENESS_MET);
        assert_true(sw_liveness_is_meeting(&l, now_ns));
        assert_false(sw_liveness_is_excused(&l, now_ns)); /* it may be dead already */
        now_ns += 15 * S;                                 /* it may be stopped meanwhile */
        take(SW_LIVENESS_MET);
        assert_true(sw_liveness_is_meeting(&l, now_ns));
        now_ns += 15 * S;
        assert_false(sw_liveness_is_meeting(&l, now_ns));
        begin(calls);
        take(SW_LIVENESS_MET);
        take(SW_LIVENESS_TOLD);
        take(SW_LIVENESS_PROVEN);
        take(SW_LIVENESS_FAREWELL);
        assert_false(sw_liveness_is_meeting(&l, now_ns)); /* but not after it */
    }
}

static void meeting__ends_when_a_first_connection_is_not_to_be_had(void **state)
{
    (void)state;
    static const enum sw_liveness_event ends[] = {SW_LIVENESS_GONE, SW_LIVENESS_REFUSED,
                                                  SW_LIVENESS_LOST, SW_LIVENESS_TIME};
    for (int i = 0; i < 4; i++) {
        begin(true);
        take(SW_LIVENESS_MET);
        take(SW_LIVENESS_TOLD);
        assert_true(sw_liveness_is_meeting(&l, now_ns));
        take(ends[i]);
        assert_false(sw_liveness_is_meeting(&l, now_ns));
        assert_true(l.state != SW_LIVENESS_DEAD); /* a firewall may have said so */
    }
    begin(false); /* who does not call may hear that nobody has the port, too */
    take(SW_LIVENESS_MET);
    take(SW_LIVENESS_GONE);
    assert_false(sw_liveness_is_meeting(&l, now_ns));
    assert_int_equal(take(SW_LIVENESS_PROVEN), SW_LIVENESS_NOTHING);
    assert_int_equal(l.state, SW_LIVENESS_UP);
}

/* It was stopped when it had said where it listens: its kernel takes the connection. */
static void reached__is_as_good_as_standing(void **state)
{
    (void)state;
    begin(true);
    take(SW_LIVENESS_MET);
    take(SW_LIVENESS_TOLD);
    assert_false(sw_liveness_is_excused(&l, now_ns));
    assert_int_equal(take(SW_LIVENESS_TAKEN), SW_LIVENESS_NOTHING);
    assert_true(sw_liveness_is_excused(&l, now_ns));
    assert_true(l.due_ns >= now_ns + 10 * S);
    now_ns += 10 * S;
    assert_int_equal(take(SW_LIVENESS_PROVEN), SW_LIVENESS_NOTHING);
    assert_int_equal(l.state, SW_LIVENESS_UP);

    begin(true); /* it dies before it has heard the token */
    take(SW_LIVENESS_MET);
    take(SW_LIVENESS_TOLD);
    take(SW_LIVENESS_TAKEN);
    assert_int_equal(take(SW_LIVENESS_ENDED), SW_LIVENESS_CALL);
    assert_int_equal(take(SW_LIVENESS_REFUSED), SW_LIVENESS_BURY);
}

/* A caller waits for the proof, from a process that may be starved. */
static void check__is_no_shorter_for_a_port_that_is_taken(void **state)
{
    (void)state;
    stand(true);
    take(SW_LIVENESS_ENDED);
    const uint64_t due_ns = l.due_ns;
    assert_int_equal(take(SW_LIVENESS_TAKEN), SW_LIVENESS_NOTHING);
    assert_true(l.due_ns == due_ns);
}

static void mad__says_what_was_meant(void **state)
{
    (void)state;
    const struct sw_liveness_mad message = {.kind = SW_LIVENESS_MAD_TELL,
                                            .from = 2046,
                                            .to = 7,
                                            .port = 40123,
                                            .nonce = 0x0102030405060708,
                                            .caller = 0x1112131415161718,
                                            .called = 0x2122232425262728};
    struct sw_liveness_mad seen;
    uint8_t mad[SW_MAD_BYTES];
    memset(mad, 0xff, sizeof(mad));
    sw_liveness_mad_encode(&message, mad);
    assert_int_equal(mad[3], SW_MAD_METHOD_SEND); /* which a kernel drops and does not answer */
    assert_true(sw_liveness_mad_decode(mad, &seen));
    assert_int_equal(seen.kind, message.kind);
    assert_int_equal(seen.from, message.from);
    assert_int_equal(seen.to, message.to);
    assert_int_equal(seen.port, message.port);
    assert_true(seen.nonce == message.nonce && seen.caller == message.caller &&
                seen.called == message.called);
    static const uint8_t needed[] = {0, 1, 2, 3, 16, 37, 38, 39, 40};
    for (size_t i = 0; i < sizeof(needed); i++) {
        mad[needed[i]] ^= 0x40;
        assert_false(sw_liveness_mad_decode(mad, &seen));
        mad[needed[i]] ^= 0x40;
    }
}

static void word__says_what_was_meant(void **state)
{
    (void)state;
    uint8_t bytes[SW_LIVENESS_WORD_BYTES];
    struct sw_liveness_word seen;
    for (int kind = SW_LIVENESS_HELLO; kind <= SW_LIVENESS_GOODBYE; kind++) {
        const struct sw_liveness_word word = {.kind = (enum sw_liveness_word_kind)kind,
                                              .mark = 0x5a,
                                              .port = 0x1234,
                                              .from = 0xabcdef,
                                              .to = 0x123456,
                                              .token = 0x0102030405060708};
        sw_liveness_word_encode(&word, bytes);
        assert_true(sw_liveness_word_decode(bytes, &seen));
        assert_int_equal(seen.kind, kind);
        assert_int_equal(seen.mark, word.mark);
        assert_int_equal(seen.port, word.port);
        assert_int_equal(seen.from, word.from);
        assert_int_equal(seen.to, word.to);
        assert_true(seen.token == word.token);
    }
    for (int kind = 0; kind < 256; kind++) {
        bytes[2] = (uint8_t)kind;
        assert_int_equal(sw_liveness_word_decode(bytes, &seen),
                         kind >= SW_LIVENESS_HELLO && kind <= SW_LIVENESS_GOODBYE);
    }
    bytes[2] = SW_LIVENESS_PING;
    bytes[0] ^= 1;
    assert_false(sw_liveness_word_decode(bytes, &seen));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asks__a_few_times_whoever_that_is),
        cmocka_unit_test(asks__at_once_when_invited),
        cmocka_unit_test(answers__count_only_while_asked_for),
        cmocka_unit_test(connection__that_cannot_be_had_is_tried_again),
        cmocka_unit_test(death__is_an_end_and_nobody_listening),
        cmocka_unit_test(death__is_looked_for_again_where_somebody_listened_still),
        cmocka_unit_test(hiccup__is_no_death),
        cmocka_unit_test(silence__of_a_host_ends_patience),
        cmocka_unit_test(another__at_its_port_is_not_waited_for),
        cmocka_unit_test(farewell__is_no_death),
        cmocka_unit_test(excuse__ends_with_an_answer_to_a_later_question),
        cmocka_unit_test(excuse__needs_a_connection),
        cmocka_unit_test(excuse__does_not_end_with_a_late_answer),
        cmocka_unit_test(excuse__ends_with_an_answer_that_takes_a_few_round_trips),
        cmocka_unit_test(meeting__lasts_for_a_while_before_the_first_connection),
        cmocka_unit_test(meeting__ends_when_a_first_connection_is_not_to_be_had),
        cmocka_unit_test(reached__is_as_good_as_standing),
        cmocka_unit_test(check__is_no_shorter_for_a_port_that_is_taken),
        cmocka_unit_test(mad__says_what_was_meant),
        cmocka_unit_test(word__says_what_was_meant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
