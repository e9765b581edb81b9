/* SPDX-License-Identifier: BSD-2-Clause */
/* Who gets a connection, and who goes for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "nvme/target/crowd.h"

enum { PLACES = 1024, DEPTH = 1024 };

struct connection {
    char address[24];
    uint32_t entries;
    bool is_proven, is_ending;
};

static struct connection connections[4 * PLACES];
static int count;

/* As the server does; a connection that has to go has gone at once. */
static bool come(const char *address, uint32_t entries, bool proves)
{
    struct nvt_crowd crowd = {.address = address, .entries = entries, .places = PLACES};
    void *leaves;
    for (int i = 0; i < count; i++) {
        const struct connection *one = &connections[i];
        const struct nvt_guest guest = {.address = one->address,
                                        .entries = one->entries,
                                        .since_ns = (uint64_t)i,
                                        .is_proven = one->is_proven,
                                        .is_ending = one->is_ending,
                                        .user = &connections[i]};
        if (one->entries)
            nvt_crowd_add(&crowd, &guest);
    }
    const bool is_admitted = nvt_crowd_admits(&crowd, &leaves);
    if (leaves)
        ((struct connection *)leaves)->entries = 0;
    if (!is_admitted)
        return false;
    connections[count] = (struct connection){.entries = entries, .is_proven = proves};
    snprintf(connections[count++].address, sizeof(connections->address), "%s", address);
    return true;
}

static int begin(void **state)
{
    (void)state;
    count = 0;
    return 0;
}

static uint64_t entries_there(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += connections[i].entries;
    return sum;
}

/* The longest queues, and no Connect: 1,000 of them from one address. */
static void unproven__have_few_entries_of_one_address(void **state)
{
    (void)state;
    assert_true(come("192.0.2.7", DEPTH, false));
    for (int i = 0; i < 1000; i++)
        assert_true(come("192.0.2.66", DEPTH, false));
    assert_int_equal(entries_there(), NVT_CROWD_OF_ADDRESS + DEPTH);
    assert_int_equal(connections[0].entries, DEPTH); /* of another address */
    assert_int_equal(connections[1].entries, 0);     /* the oldest */
    assert_int_equal(connections[count - 1].entries, DEPTH);
}

static void unproven__have_few_entries_of_many_addresses(void **state)
{
    (void)state;
    char address[24];
    for (int i = 0; i < 1000; i++) {
        snprintf(address, sizeof(address), "192.0.2.%d", i % 100);
        assert_true(come(address, DEPTH, false));
    }
    assert_int_equal(entries_there(), NVT_CROWD_MAX);
    assert_int_equal(connections[0].entries, 0);
}

static void unproven__of_short_queues_count_for_more_than_they_have(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++)
        assert_true(come("192.0.2.66", 2, false));
    assert_int_equal(entries_there(), 2 * NVT_CROWD_OF_ADDRESS / NVT_CROWD_ENTRY_MIN);
}

static void unproven__that_are_ending_are_waited_for(void **state)
{
    (void)state;
    int refused = 0;
    for (int i = 0; i < 200; i++) {
        refused += !come("192.0.2.66", DEPTH, false);
        for (int j = 0; j < count; j++)
            if (!connections[j].entries) /* those take their time */
                connections[j] = (struct connection){.entries = DEPTH, .is_ending = true};
    }
    assert_true(entries_there() <= NVT_CROWD_ENDING);
    assert_true(refused > 0);
}

static void proven__of_one_address_leave_a_quarter(void **state)
{
    (void)state;
    while (count < PLACES && come("192.0.2.66", DEPTH, true))
        ;
    assert_in_range(count, PLACES * 3 / 4 - 1, PLACES * 3 / 4);
    assert_true(come("192.0.2.7", DEPTH, true));
}

static void proven__never_have_to_go(void **state)
{
    (void)state;
    char address[24];
    bool is_full = false;
    for (int i = 0; i < PLACES; i++) {
        snprintf(address, sizeof(address), "198.51.100.%d", i % 200);
        is_full = !come(address, 128, true) || is_full;
    }
    assert_true(is_full);
    assert_false(come("198.51.100.1", 128, false));
    for (int i = 0; i < count; i++)
        assert_int_equal(connections[i].entries, 128);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        CASE(unproven__have_few_entries_of_one_address),
        CASE(unproven__have_few_entries_of_many_addresses),
        CASE(unproven__of_short_queues_count_for_more_than_they_have),
        CASE(unproven__that_are_ending_are_waited_for),
        CASE(proven__of_one_address_leave_a_quarter),
        CASE(proven__never_have_to_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
