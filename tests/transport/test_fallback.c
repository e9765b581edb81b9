/* SPDX-License-Identifier: BSD-2-Clause */
/* When a connection is tried over TCP, and that its two ends never execute what they have executed.
 */
#include "transport/fallback.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS 1000000ull

static enum sw_fallback_step take(struct sw_fallback *f, enum sw_fallback_event event)
{
    return sw_fallback_take(f, event, 0);
}

static struct sw_fallback calling(void)
{
    struct sw_fallback f = {0};
    assert_int_equal(take(&f, SW_FALLBACK_KNOWN), SW_FALLBACK_CALL);
    return f;
}

static struct sw_fallback asked(bool is_lower)
{
    struct sw_fallback f = calling();
    f.is_lower = is_lower;
    assert_int_equal(take(&f, SW_FALLBACK_REQUEST), SW_FALLBACK_NOTHING);
    return f;
}

static void fallback__calls_after_four_timeouts_and_a_while(void **state)
{
    (void)state;
    struct sw_fallback f = {0};
    for (uint64_t i = 1; i < 4; i++)
        assert_int_equal(sw_fallback_take(&f, SW_FALLBACK_UNANSWERED, i * 1000 * MS),
                         SW_FALLBACK_NOTHING);
    assert_int_equal(sw_fallback_take(&f, SW_FALLBACK_UNANSWERED, 150 * MS), SW_FALLBACK_NOTHING);
    assert_int_equal(sw_fallback_take(&f, SW_FALLBACK_UNANSWERED, 200 * MS), SW_FALLBACK_CALL);
    assert_int_equal(sw_fallback_take(&f, SW_FALLBACK_UNANSWERED, 300 * MS), SW_FALLBACK_NOTHING);
    assert_true(f.has_missed);
}

static void fallback__what_is_known_calls_at_once(void **state)
{
    (void)state;
    struct sw_fallback f = calling();
    assert_false(f.has_missed);
    assert_int_equal(take(&f, SW_FALLBACK_KNOWN), SW_FALLBACK_NOTHING);
    for (int i = 0; i < 4; i++)
        sw_fallback_take(&f, SW_FALLBACK_UNANSWERED, 500 * MS);
    assert_true(f.has_missed); /* found once more */
}

static void fallback__a_packet_ends_it_for_good(void **state)
{
    (void)state;
    struct sw_fallback f = calling();
    assert_int_equal(take(&f, SW_FALLBACK_PACKET), SW_FALLBACK_NOTHING);
    assert_int_equal(f.state, SW_FALLBACK_BY_PACKETS);
    for (int i = 0; i < 9; i++)
        assert_int_equal(sw_fallback_take(&f, SW_FALLBACK_UNANSWERED, 900 * MS),
                         SW_FALLBACK_NOTHING);
    assert_int_equal(take(&f, SW_FALLBACK_KNOWN), SW_FALLBACK_NOTHING);
    assert_int_equal(take(&f, SW_FALLBACK_REQUEST), SW_FALLBACK_REFUSE);
    assert_int_equal(take(&f, SW_FALLBACK_TAKEN), SW_FALLBACK_REFUSE);
    assert_int_equal(take(&f, SW_FALLBACK_CALLED), SW_FALLBACK_REFUSE);
}

static void fallback__no_packet_is_taken_while_asked_or_moved(void **state)
{
    (void)state;
    struct sw_fallback f = asked(true);
    assert_int_equal(take(&f, SW_FALLBACK_PACKET), SW_FALLBACK_REFUSE);
    assert_int_equal(take(&f, SW_FALLBACK_MISSED), SW_FALLBACK_NOTHING);
    struct sw_fallback missed = f;
    assert_int_equal(take(&missed, SW_FALLBACK_PACKET), SW_FALLBACK_NOTHING);
    assert_int_equal(take(&f, SW_FALLBACK_REQUEST), SW_FALLBACK_NOTHING);
    assert_int_equal(take(&f, SW_FALLBACK_TAKEN), SW_FALLBACK_MOVE);
    assert_int_equal(take(&f, SW_FALLBACK_PACKET), SW_FALLBACK_REFUSE);
    assert_int_equal(take(&f, SW_FALLBACK_CALLED), SW_FALLBACK_REFUSE);
}

static void fallback__who_never_sends_is_moved_by_its_peer(void **state)
{
    (void)state;
    struct sw_fallback f = {0};
    assert_int_equal(take(&f, SW_FALLBACK_TAKEN), SW_FALLBACK_REFUSE); /* of what call? */
    assert_int_equal(take(&f, SW_FALLBACK_CALLED), SW_FALLBACK_MOVE);
}

static void fallback__of_two_calls_one_counts(void **state)
{
    (void)state;
    struct sw_fallback lower = asked(true), higher = asked(false);
    assert_int_equal(take(&lower, SW_FALLBACK_CALLED), SW_FALLBACK_REFUSE);
    assert_int_equal(take(&higher, SW_FALLBACK_CALLED), SW_FALLBACK_MOVE);
    assert_int_equal(take(&lower, SW_FALLBACK_TAKEN), SW_FALLBACK_MOVE);
    struct sw_fallback waits = calling(); /* its TCP is not answered: the other's is as good */
    waits.is_lower = true;
    assert_int_equal(take(&waits, SW_FALLBACK_CALLED), SW_FALLBACK_MOVE);
}

/* ---- two ends in a network that loses, delays and cuts off ---- */

/* An end, with one request for the other and what it has executed of the other's. */
struct end {
    struct sw_fallback f;
    bool sends_by_tcp; /* it has a connection that it believes in */
    int by_packets, by_tcp;
};

static uint32_t draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*seed >> 33) % below;
}

static void call_other(struct end *one, struct end *other, uint64_t *seed)
{
    if (one->f.state != SW_FALLBACK_CALLING || take(&one->f, SW_FALLBACK_REQUEST))
        return;
    const bool arrives = draw(seed, 4), is_answered = draw(seed, 4), is_late = draw(seed, 2);
    if (is_late) /* the caller has given it up when it arrives */
        take(&one->f, SW_FALLBACK_MISSED);
    const bool is_taken = arrives && (other->f.state == SW_FALLBACK_MOVED ||
                                      take(&other->f, SW_FALLBACK_CALLED) == SW_FALLBACK_MOVE);
    if (is_taken)
        other->sends_by_tcp = true;
    if (is_late)
        return;
    if (is_taken && is_answered && take(&one->f, SW_FALLBACK_TAKEN) == SW_FALLBACK_MOVE)
        one->sends_by_tcp = true;
    else
        take(&one->f, SW_FALLBACK_MISSED);
}

/* By packets an end sends as long as it has not moved; by TCP once it has. An answer to a packet
 * that was executed may be lost, so a request may be sent both ways. */
static void send_request(struct end *one, struct end *other, bool udp_passes)
{
    if (one->f.state != SW_FALLBACK_MOVED && udp_passes &&
        take(&other->f, SW_FALLBACK_PACKET) == SW_FALLBACK_NOTHING)
        other->by_packets = 1; /* copies are known by their PSN */
    if (one->f.state == SW_FALLBACK_MOVED && one->sends_by_tcp &&
        other->f.state == SW_FALLBACK_MOVED)
        other->by_tcp = 1;
}

static void fallback__nothing_is_executed_by_both_ways(void **state)
{
    (void)state;
    int moved = 0, stayed = 0;
    for (uint64_t run = 1; run <= 20000; run++) {
        uint64_t seed = run;
        struct end ends[2] = {{.f.is_lower = true}, {.f.is_lower = false}};
        const uint32_t passes[2] = {draw(&seed, 3), draw(&seed, 3)}; /* never, seldom, mostly */
        for (int step = 0; step < 40; step++) {
            const uint32_t who = draw(&seed, 2);
            struct end *one = &ends[who], *other = &ends[1 - who];
            switch (draw(&seed, 3)) {
            case 0:
                sw_fallback_take(&one->f, SW_FALLBACK_UNANSWERED, 500 * MS);
                break;
            case 1:
                send_request(one, other, passes[who] && draw(&seed, 4) < passes[who] * 2);
                break;
            default:
                call_other(one, other, &seed);
                break;
            }
            for (int i = 0; i < 2; i++)
                assert_true(ends[i].by_packets + ends[i].by_tcp <= 1);
        }
        moved += ends[0].by_tcp && ends[1].by_tcp;
        stayed += ends[0].by_packets && ends[1].by_packets;
    }
    assert_true(moved > 1000 && stayed > 1000); /* it was about both */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fallback__calls_after_four_timeouts_and_a_while),
        cmocka_unit_test(fallback__what_is_known_calls_at_once),
        cmocka_unit_test(fallback__a_packet_ends_it_for_good),
        cmocka_unit_test(fallback__no_packet_is_taken_while_asked_or_moved),
        cmocka_unit_test(fallback__who_never_sends_is_moved_by_its_peer),
        cmocka_unit_test(fallback__of_two_calls_one_counts),
        cmocka_unit_test(fallback__nothing_is_executed_by_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
