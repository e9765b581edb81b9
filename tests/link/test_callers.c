/* SPDX-License-Identifier: BSD-2-Clause */
/* Callers that get in, and those that make room, at a door that anyone may call. */
#include "link/callers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

enum { PLACES = 8, OF_ADDRESS = 4, STRANGERS = 500 };

struct guest {
    struct sw_caller place; /* the first member */
    uint32_t address;
    bool is_in, has_spoken; /* its word lies in the kernel */
};

static struct guest guests[STRANGERS];
static uint32_t guest_count;

static bool hear_guest(struct sw_caller *place);
static void turn_guest_away(struct sw_caller *place);
static const struct sw_callers_rule rule = {.places_max = PLACES,
                                            .fds_parts = 1,
                                            .address_parts = PLACES / OF_ADDRESS,
                                            .patience_ns = 100,
                                            .hear = hear_guest,
                                            .turn_away = turn_guest_away};
static struct sw_callers door;

static bool hear_guest(struct sw_caller *place)
{
    struct guest *guest = (struct guest *)place;
    if (!guest->has_spoken)
        return true;
    sw_callers_remove(&door, place);
    return false;
}

static void turn_guest_away(struct sw_caller *place)
{
    sw_callers_remove(&door, place);
    ((struct guest *)place)->is_in = false;
}

static int open_door(void **state)
{
    (void)state;
    memset(guests, 0, sizeof(guests));
    guest_count = 0;
    door = (struct sw_callers){.rule = &rule};
    return 0;
}

static struct guest *call_from(uint32_t address)
{
    struct guest *guest = &guests[guest_count++];
    struct in6_addr from = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(from.s6_addr + 12, &address, sizeof(address));
    guest->address = address;
    guest->is_in = true;
    sw_callers_make_room(&door, &from, guest_count);
    sw_callers_add(&door, &guest->place, &from, guest_count);
    assert_true(door.count <= PLACES);
    return guest;
}

static void add__the_oldest_of_an_address_makes_room_for_its_next(void **state)
{
    (void)state;
    for (int i = 0; i < OF_ADDRESS + 2; i++)
        call_from(1);
    assert_int_equal(door.count, OF_ADDRESS);
    for (uint32_t i = 0; i < guest_count; i++)
        assert_int_equal(guests[i].is_in, i >= 2);
}

/* Strangers of one address, or of some, never cost another address its place. */
static void add__a_crowd_makes_room_for_the_few(void **state)
{
    (void)state;
    const struct guest *lone = call_from(1);
    for (int i = 0; i < 60; i++)
        call_from(2 + (uint32_t)i % 3);
    assert_true(lone->is_in);
    assert_int_equal(door.count, PLACES);
    const struct guest *late = call_from(9);
    for (int i = 0; i < 60; i++)
        call_from(2 + (uint32_t)i % 3);
    assert_true(late->is_in && lone->is_in);
}

static void add__the_oldest_of_all_where_each_has_one(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PLACES; i++)
        call_from(100 + i);
    guests[0].place.since_ns = 1000; /* it was heard meanwhile */
    call_from(1);
    assert_true(guests[0].is_in);
    assert_false(guests[1].is_in);
}

static void add__whoever_makes_room_is_heard_first(void **state)
{
    (void)state;
    call_from(1)->has_spoken = true;
    for (int i = 0; i < STRANGERS - 1; i++)
        call_from(2 + (uint32_t)i);
    assert_true(guests[0].is_in); /* not turned away, but let in */
}

static void add__what_the_process_may_open_bounds_it(void **state)
{
    (void)state;
    const struct sw_callers_rule many = {
        .places_max = STRANGERS, .fds_parts = 8, .address_parts = 1, .turn_away = turn_guest_away};
    struct rlimit limit, before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = 8 * 6;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    door.rule = &many;
    for (uint32_t i = 0; i < 20; i++)
        call_from(i);
    assert_int_equal(door.count, 6);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- those whose word may be under way ---- */

static const struct sw_callers_rule kind = {.places_max = PLACES,
                                            .fds_parts = 1,
                                            .address_parts = PLACES / OF_ADDRESS,
                                            .patience_ns = 1000,
                                            .grace_ns = 100,
                                            .hear = hear_guest,
                                            .turn_away = turn_guest_away};

static void await__whoever_came_a_moment_ago_holds_up_the_next(void **state)
{
    (void)state;
    door.rule = &kind;
    for (int i = 0; i < OF_ADDRESS; i++) {
        assert_false(sw_callers_are_awaited(&door, guest_count));
        call_from(1);
    }
    assert_true(sw_callers_are_awaited(&door, 100));
    assert_false(sw_callers_are_awaited(&door, 101));
    turn_guest_away(&guests[2].place); /* it has asked */
    assert_false(sw_callers_are_awaited(&door, 5));
}

static void await__all_places_whoever_has_them(void **state)
{
    (void)state;
    door.rule = &kind;
    for (uint32_t i = 0; i < PLACES; i++) {
        assert_false(sw_callers_are_awaited(&door, guest_count));
        call_from(100 + i);
    }
    assert_true(sw_callers_are_awaited(&door, PLACES));
    assert_false(sw_callers_are_awaited(&door, 101));
}

/* Else strangers of one address would hold up all others, again and again. */
static void await__none_of_an_address_that_went_without_a_word(void **state)
{
    (void)state;
    const uint64_t later_ns = 3600 * 1000000000ull;
    struct in6_addr from;
    door.rule = &kind;
    for (int i = 0; i < OF_ADDRESS; i++)
        call_from(1);
    from = guests[0].place.from;
    sw_callers_make_room(&door, &from, 101);
    assert_false(guests[0].is_in);
    guest_count = 101; /* the time */
    call_from(1);
    guests[2].place.since_ns = guests[1].place.since_ns = guests[3].place.since_ns = 101;
    assert_false(sw_callers_are_awaited(&door, 102));
    for (int i = 1; i < OF_ADDRESS; i++)
        guests[i].place.since_ns = later_ns;
    guests[101].place.since_ns = later_ns;
    assert_true(sw_callers_are_awaited(&door, later_ns)); /* that is forgotten */
}

static void await__none_of_all_that_went_without_a_word(void **state)
{
    (void)state;
    struct in6_addr from;
    door.rule = &kind;
    for (uint32_t i = 0; i < PLACES; i++)
        call_from(100 + i);
    from = guests[0].place.from;
    sw_callers_make_room(&door, &from, 150);
    assert_int_equal(door.count, PLACES - 1);
    for (uint32_t i = 0; i < PLACES; i++) /* they come again */
        guests[i].place.since_ns = 150;
    call_from(100)->place.since_ns = 150;
    assert_false(sw_callers_are_awaited(&door, 151));
}

/* Each time other ones come, and say nothing. */
static void await__nobody_where_it_is_in_vain_again_and_again(void **state)
{
    (void)state;
    uint64_t now_ns = 0;
    int held_up = 0;
    door.rule = &kind;
    for (uint32_t i = 0; i < STRANGERS / OF_ADDRESS; i++) {
        struct in6_addr from;
        for (int k = 0; k < OF_ADDRESS; k++)
            call_from(i)->place.since_ns = now_ns;
        held_up += sw_callers_are_awaited(&door, now_ns + 1);
        from = guests[guest_count - 1].place.from;
        now_ns += 100;
        sw_callers_make_room(&door, &from, now_ns);
    }
    assert_in_range(held_up, 1, 4);
}

static void await__none_of_an_address_that_was_silent_to_the_end(void **state)
{
    (void)state;
    door.rule = &kind;
    call_from(1);
    assert_int_equal(sw_callers_tend(&door, 1001), UINT64_MAX);
    for (int i = 0; i < OF_ADDRESS; i++)
        call_from(1)->place.since_ns = 1001;
    assert_false(sw_callers_are_awaited(&door, 1002));
}

static void remove__keeps_count_of_addresses(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PLACES; i++)
        call_from(i % 2);
    turn_guest_away(&guests[0].place);
    turn_guest_away(&guests[4].place);
    call_from(7);
    call_from(8); /* full: the four of address 1 are a crowd, the two of address 0 are none */
    call_from(9);
    assert_int_equal(guests[1].is_in, 0);
    assert_true(guests[2].is_in && guests[6].is_in);
}

static void tend__turns_away_who_is_silent_for_too_long(void **state)
{
    (void)state;
    call_from(1);
    call_from(2);
    call_from(2);
    guests[0].place.since_ns = 50;
    assert_int_equal(sw_callers_tend(&door, 100), 102);
    assert_int_equal(sw_callers_tend(&door, 103), 150);
    assert_int_equal(door.count, 1);
    assert_int_equal(sw_callers_tend(&door, 150), UINT64_MAX);
    assert_int_equal(door.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(add__the_oldest_of_an_address_makes_room_for_its_next, open_door),
        cmocka_unit_test_setup(add__a_crowd_makes_room_for_the_few, open_door),
        cmocka_unit_test_setup(add__the_oldest_of_all_where_each_has_one, open_door),
        cmocka_unit_test_setup(add__whoever_makes_room_is_heard_first, open_door),
        cmocka_unit_test_setup(add__what_the_process_may_open_bounds_it, open_door),
        cmocka_unit_test_setup(await__whoever_came_a_moment_ago_holds_up_the_next, open_door),
        cmocka_unit_test_setup(await__all_places_whoever_has_them, open_door),
        cmocka_unit_test_setup(await__none_of_an_address_that_went_without_a_word, open_door),
        cmocka_unit_test_setup(await__none_of_all_that_went_without_a_word, open_door),
        cmocka_unit_test_setup(await__nobody_where_it_is_in_vain_again_and_again, open_door),
        cmocka_unit_test_setup(await__none_of_an_address_that_was_silent_to_the_end, open_door),
        cmocka_unit_test_setup(remove__keeps_count_of_addresses, open_door),
        cmocka_unit_test_setup(tend__turns_away_who_is_silent_for_too_long, open_door),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
