/* SPDX-License-Identifier: BSD-2-Clause */
/* Clients that want a place of a server, and those that go for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "common/serve/places.h"
#include "common/time/units.h"

enum { PLACES = 64, READERS = 40, UNPROVED = 16, OF_ONE = 32, UNPROVED_OF_ONE = 4 };

/* A client is its place in this table. */
static struct mover_guest guests[PLACES];
static bool is_about_to_prove[PLACES];
static uint32_t count, gone, probes;
static uint64_t now_ns;
static const struct mover_guest *last_gone;

static struct mover_guest guest_at(void *context, uint32_t place)
{
    (void)context;
    return guests[place];
}

static void take_proof(void *context, void *client)
{
    struct mover_guest *guest = client;
    (void)context;
    guest->is_proved |= is_about_to_prove[guest - guests];
}

static void let_guest_go(void *context, void *client)
{
    struct mover_guest *guest = client;
    (void)context;
    last_gone = guest;
    *guest = (struct mover_guest){0};
    count--;
    gone++;
}

static void probe_guest(void *context, void *client)
{
    (void)context;
    ((struct mover_guest *)client)->probed_ns = now_ns;
    probes++;
}

static const struct mover_places places = {
    .count = PLACES,
    .readers_max = READERS,
    .unproved_max = UNPROVED,
    .of_one = OF_ONE,
    .unproved_of_one = UNPROVED_OF_ONE,
    .young_ns = NS_PER_S,
    .prove_ns = 5 * NS_PER_S,
    .answer_ns = 30 * NS_PER_S,
    .probe_ns = 30 * NS_PER_S,
    .at = guest_at,
    .look = take_proof,
    .let_go = let_guest_go,
    .probe = probe_guest,
};

static int begin(void **state)
{
    (void)state;
    memset(guests, 0, sizeof(guests));
    memset(is_about_to_prove, 0, sizeof(is_about_to_prove));
    count = gone = probes = 0;
    now_ns = 100 * NS_PER_S;
    last_gone = NULL;
    return 0;
}

/* NULL: it is refused. */
static struct mover_guest *come_as(uint32_t host, bool is_reader, bool is_proved)
{
    struct in6_addr origin = {.s6_addr = {0x20, 1, 0xd, 0xb8, [7] = (uint8_t)host}};
    struct mover_guest *guest = guests;
    if (!mover_places_make_room(&places, &origin, is_reader, now_ns))
        return NULL;
    while (guest->client)
        guest++;
    assert_true(guest < guests + PLACES);
    *guest = (struct mover_guest){.client = guest,
                                  .origin = origin,
                                  .since_ns = now_ns,
                                  .probed_ns = now_ns,
                                  .is_reader = is_reader,
                                  .is_proved = is_proved};
    count++;
    now_ns++;
    return guest;
}

static struct mover_guest *come(uint32_t host)
{
    return come_as(host, false, false);
}

/* As many as get a place. */
static uint32_t take_all(uint32_t host, bool is_reader)
{
    uint32_t had = 0;
    while (come_as(host, is_reader, true))
        had++;
    return had;
}

static void proved__of_each_address_leave_some_to_the_next(void **state)
{
    (void)state;
    uint32_t before = take_all(1, false);
    assert_int_equal(before, OF_ONE);
    for (uint32_t host = 2; host < 5; host++) {
        const uint32_t had = take_all(host, false);
        assert_in_range(had, 1, before);
        assert_true(had <= 3 * (PLACES - count));
        before = had;
    }
    assert_int_equal(gone, 0);
}

static void proved__readers_have_half_and_leave_some_to_writers(void **state)
{
    (void)state;
    assert_int_equal(take_all(1, true), OF_ONE / 2);
    for (uint32_t host = 2; host < 100; host++)
        (void)take_all(host, true);
    assert_int_equal(count, READERS);
    assert_non_null(come_as(100, false, true));
    assert_int_equal(gone, 0);
}

static void proved__never_go(void **state)
{
    (void)state;
    for (uint32_t host = 1; count < PLACES; host++)
        assert_non_null(come_as(host, false, true));
    now_ns += 3600 * NS_PER_S;
    assert_null(come(200));
    assert_int_equal(gone, 0);
}

static void unproved__of_one_address_replace_their_oldest(void **state)
{
    (void)state;
    struct mover_guest *other = come(9), *oldest = come(1);
    for (uint32_t i = 1; i < UNPROVED_OF_ONE; i++)
        assert_non_null(come(1));
    assert_null(come(1)); /* that is young */
    assert_int_equal(gone, 0);
    now_ns += NS_PER_S;
    assert_non_null(come(1));
    assert_int_equal(gone, 1);
    assert_ptr_equal(last_gone, oldest);
    assert_non_null(other->client);
    now_ns += NS_PER_S;
    assert_non_null(come(1)); /* again the oldest, which has another place */
    assert_ptr_equal(last_gone, oldest + 1);
}

/* Some addresses have all places for those that have proved nothing: the first has one, the next
 * has three, then there are three with four. */
static void fill_unproved(void)
{
    assert_non_null(come(1));
    for (uint32_t i = 0; i < UNPROVED - 1; i++)
        assert_non_null(come(i < 3 ? 2 : 3 + (i - 3) / 4));
    assert_int_equal(count, UNPROVED);
}

static void unproved__the_address_with_most_makes_room(void **state)
{
    (void)state;
    fill_unproved();
    now_ns += 2 * NS_PER_S;
    assert_non_null(come(1)); /* which has few, and is not turned away for that */
    assert_int_equal(gone, 1);
    assert_ptr_equal(last_gone, &guests[4]);
    assert_int_equal(guests[0].origin.s6_addr[7], 1);
}

static void unproved__that_are_young_go_for_an_address_that_has_less(void **state)
{
    (void)state;
    fill_unproved();
    assert_null(come(2)); /* it would have as many as another one had before, and that one less */
    assert_non_null(come(50));
    assert_int_equal(gone, 1);
    assert_non_null(come(1)); /* then it has two, and another one still four */
    assert_int_equal(gone, 2);
    assert_non_null(come(1));
    assert_int_equal(gone, 3);
    assert_null(come(1)); /* it has as many as any other */
    assert_int_equal(gone, 3);
}

/* One of them has its share of all, and only few that have proved nothing. */
static void unproved__of_others_stay_where_an_address_has_its_share(void **state)
{
    (void)state;
    assert_non_null(come(2));
    assert_non_null(come(2));
    for (uint32_t i = 1; i < OF_ONE; i++)
        assert_non_null(come_as(1, false, true));
    struct mover_guest *own = come(1);
    now_ns += 2 * NS_PER_S;
    assert_non_null(come(1));
    assert_int_equal(gone, 1);
    assert_ptr_equal(last_gone, own);
}

/* An address with many that have proved themselves has no more for that of the others. */
static void unproved__are_counted_alone(void **state)
{
    (void)state;
    struct mover_guest *alone = come(1);
    for (uint32_t i = 0; i < 8; i++)
        assert_non_null(come_as(1, false, true));
    for (uint32_t i = 0; i < UNPROVED - 1; i++)
        assert_non_null(come(2 + i / 4));
    now_ns += 2 * NS_PER_S;
    assert_non_null(come(50));
    assert_int_equal(gone, 1);
    assert_ptr_not_equal(last_gone, alone);
}

static void unproved__that_have_asked_in_the_meantime_stay(void **state)
{
    (void)state;
    struct mover_guest *oldest = come(1);
    is_about_to_prove[oldest - guests] = true;
    for (uint32_t i = 1; i < UNPROVED_OF_ONE; i++)
        assert_non_null(come(1));
    assert_non_null(come(1));
    assert_true(oldest->is_proved);
    assert_int_equal(gone, 0);
    now_ns += 2 * NS_PER_S;
    assert_non_null(come(1));
    assert_int_equal(gone, 1);
    assert_true(oldest->is_proved);
}

static void unproved__only_readers_go_for_readers(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < UNPROVED_OF_ONE; i++)
        assert_non_null(come(1));
    assert_non_null(come_as(2, true, false)); /* it is older */
    assert_non_null(come_as(2, true, false));
    struct mover_guest *reader = come_as(1, true, false); /* its address has four */
    for (uint32_t host = 3; count < READERS + UNPROVED_OF_ONE - 1; host++)
        assert_non_null(come_as(host, true, true));
    assert_non_null(come_as(100, true, false));
    assert_ptr_equal(last_gone, reader);
    assert_int_equal(gone, 1);
}

static void silent__leave_after_a_while(void **state)
{
    (void)state;
    assert_int_equal(mover_places_sweep(&places, now_ns), 0);
    struct mover_guest *silent = come(1), *slow = come_as(2, false, true);
    struct mover_guest *quick = come_as(3, false, true);
    slow->answered_ns = now_ns;
    now_ns += 4 * NS_PER_S;
    assert_in_range(mover_places_sweep(&places, now_ns), now_ns + 1, now_ns + 2 * NS_PER_S);
    assert_int_equal(gone, 0);
    now_ns += NS_PER_S;
    assert_true(mover_places_sweep(&places, now_ns));
    assert_int_equal(gone, 1);
    assert_ptr_equal(last_gone, silent);
    now_ns += 25 * NS_PER_S;
    assert_true(mover_places_sweep(&places, now_ns));
    assert_int_equal(gone, 2);
    assert_ptr_equal(last_gone, slow);
    assert_non_null(quick->client);
    let_guest_go(NULL, quick);
    assert_int_equal(mover_places_sweep(&places, now_ns), 0);
}

static void idle__are_probed_now_and_then(void **state)
{
    (void)state;
    struct mover_guest *idle = come_as(1, false, true);
    for (uint32_t i = 0; i < 300; i++) {
        now_ns += NS_PER_S;
        assert_true(mover_places_sweep(&places, now_ns));
    }
    assert_int_equal(probes, 10);
    assert_non_null(idle->client);
    assert_int_equal(gone, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        CASE(proved__of_each_address_leave_some_to_the_next),
        CASE(proved__readers_have_half_and_leave_some_to_writers),
        CASE(proved__never_go),
        CASE(unproved__of_one_address_replace_their_oldest),
        CASE(unproved__the_address_with_most_makes_room),
        CASE(unproved__that_are_young_go_for_an_address_that_has_less),
        CASE(unproved__of_others_stay_where_an_address_has_its_share),
        CASE(unproved__are_counted_alone),
        CASE(unproved__that_have_asked_in_the_meantime_stay),
        CASE(unproved__only_readers_go_for_readers),
        CASE(silent__leave_after_a_while),
        CASE(idle__are_probed_now_and_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
