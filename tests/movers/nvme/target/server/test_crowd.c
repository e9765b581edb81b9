/* SPDX-License-Identifier: BSD-2-Clause */
/* Guests that get a connection, and those that go for it. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "nvme/target/server/crowd.h"

enum { COMPLETIONS = 1 << 22, PLACES = 1024, DEPTH = 1024, ADMIN_DEPTH = 32, IO_QUEUES = 64 };
#define SECOND_NS 1000000000ull

struct connection {
    char address[24];
    uint32_t entries; /* 0: it has gone */
    uint32_t io_queues_max;
    bool is_io, is_expected, is_proven, is_ending;
};

static struct connection connections[8 * PLACES];
static int count;
static uint32_t places;
static uint64_t now_ns;
static bool takes_its_time; /* a connection that has to go */

static void leave(struct connection *one)
{
    if (takes_its_time)
        one->is_ending = true;
    else
        one->entries = 0;
}

static void let_ending_go(void)
{
    for (int i = 0; i < count; i++)
        if (connections[i].is_ending)
            connections[i].entries = 0;
}

static uint32_t completions_of(uint32_t entries)
{
    return 3 * entries + 80;
}

/* As the server does. */
static bool arrive(struct connection comer)
{
    static struct nvt_crowd all, *crowd = &all;
    void *leaves;
    memset(crowd, 0xa5, sizeof(*crowd)); /* what was there before */
    nvt_crowd_clear(crowd);
    crowd->completions = completions_of(comer.entries);
    crowd->completions_max = COMPLETIONS;
    crowd->address = comer.address;
    crowd->entries = comer.entries;
    crowd->is_io = comer.is_io;
    crowd->places = places;
    crowd->now_ns = now_ns;
    for (int i = 0; i < count; i++) {
        const struct connection *one = &connections[i];
        const struct nvt_guest guest = {.address = one->address,
                                        .entries = one->entries,
                                        .completions = completions_of(one->entries),
                                        .io_queues_max = one->io_queues_max,
                                        .since_ns = (uint64_t)i,
                                        .is_io = one->is_io,
                                        .is_expected = one->is_expected,
                                        .is_proven = one->is_proven,
                                        .is_ending = one->is_ending,
                                        .user = &connections[i]};
        if (one->entries)
            nvt_crowd_add(crowd, &guest);
    }
    const bool is_admitted = nvt_crowd_admits(crowd, &leaves);
    comer.is_expected = nvt_crowd_expects(crowd);
    if (leaves)
        leave(leaves);
    assert_in_range(count, 0, sizeof(connections) / sizeof(*connections) - 1);
    if (is_admitted)
        connections[count++] = comer;
    return is_admitted;
}

static bool come(const char *address, uint32_t entries, bool proves)
{
    struct connection comer = {.entries = entries, .is_proven = proves};
    snprintf(comer.address, sizeof(comer.address), "%s", address);
    return arrive(comer);
}

static bool come_for_io(const char *address, uint32_t entries)
{
    struct connection comer = {.entries = entries, .is_io = true};
    snprintf(comer.address, sizeof(comer.address), "%s", address);
    return arrive(comer);
}

static bool come_and_have_controller(const char *address)
{
    struct connection comer = {.entries = ADMIN_DEPTH, .io_queues_max = IO_QUEUES};
    snprintf(comer.address, sizeof(comer.address), "%s", address);
    if (!arrive(comer))
        return false;
    connections[count - 1].is_proven = true;
    return true;
}

static int begin(void **state)
{
    (void)state;
    count = 0;
    places = PLACES;
    takes_its_time = false;
    now_ns = 2 * SECOND_NS;
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
    takes_its_time = true;
    for (int i = 0; i < 200; i++)
        refused += !come("192.0.2.66", DEPTH, false);
    assert_true(entries_there() <= NVT_CROWD_ENDING_OF_ADDRESS);
    assert_true(refused > 0);
}

/* Three addresses call without end, and what has to go for them takes its time. */
static void unproven__of_few_addresses_keep_no_other_away(void **state)
{
    (void)state;
    char address[24];
    takes_its_time = true;
    for (int i = 0; i < 1000; i++) {
        for (int j = 0; j < 3; j++) {
            snprintf(address, sizeof(address), "198.51.100.%d", j);
            (void)come(address, DEPTH, false);
        }
        if (i % 100 == 50) {
            snprintf(address, sizeof(address), "192.0.2.%d", i / 100);
            assert_true(come(address, DEPTH, false));
        }
        if (i % 40 == 39)
            let_ending_go();
    }
    for (int i = 0; i < count; i++)
        assert_false(!strncmp(connections[i].address, "192.0.2.", 8) &&
                     (connections[i].is_ending || !connections[i].entries));
    assert_true(entries_there() <= NVT_CROWD_BOUND);
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

/* ---- hosts that make all connections of a controller before they say the first Connect ---- */

enum { HOSTS_MAX = 64 };

struct host {
    char address[24];
    int of[1 + IO_QUEUES]; /* connections: the admin queue's first */
    int steps;
    bool has_failed;
};

static struct host hosts[HOSTS_MAX];

/* A host has all of its queues or none. */
static void give_up(struct host *host)
{
    for (int i = 0; i < host->steps && i <= IO_QUEUES; i++)
        if (host->of[i] >= 0)
            connections[host->of[i]].entries = 0;
    host->has_failed = true;
}

static void step(struct host *host, int queues, uint32_t depth)
{
    const int at = host->steps++;
    bool is_good;
    if (at <= queues) {
        is_good = at ? come_for_io(host->address, depth) : come_and_have_controller(host->address);
        host->of[at] = is_good ? count - 1 : -1;
    } else {
        struct connection *one = &connections[host->of[at - queues]];
        is_good = one->entries;
        one->is_proven = true;
    }
    if (!is_good)
        give_up(host);
}

/* All that are not up yet try once more, at the same time. Returns how many are up then. */
static int try_all(int host_count, int queues, uint32_t depth)
{
    int up = 0;
    for (int i = 0; i < host_count; i++)
        if (hosts[i].has_failed)
            hosts[i].steps = hosts[i].has_failed = 0;
    for (int at = 0; at <= 2 * queues; at++)
        for (int i = 0; i < host_count; i++)
            if (!hosts[i].has_failed && hosts[i].steps == at)
                step(&hosts[i], queues, depth);
    for (int i = 0; i < host_count; i++)
        up += !hosts[i].has_failed;
    return up;
}

static void name_hosts(int host_count, bool is_one_address)
{
    begin(NULL);
    memset(hosts, 0, sizeof(hosts));
    for (int i = 0; i < host_count; i++)
        snprintf(hosts[i].address, sizeof(hosts->address), "192.0.2.%d", is_one_address ? 1 : i);
}

static void herd__of_hosts_has_all_its_queues(void **state)
{
    (void)state;
    static const struct {
        int hosts, queues;
        uint32_t depth;
        bool is_one_address;
    } herds[] = {{1, 64, DEPTH, false}, {5, 64, 128, true},   {9, 64, 128, false},
                 {20, 32, 128, false},  {40, 16, 128, false}, {20, 64, 128, false},
                 {8, 64, DEPTH, false}};
    for (size_t i = 0; i < sizeof(herds) / sizeof(*herds); i++) {
        name_hosts(herds[i].hosts, herds[i].is_one_address);
        places = 4 * PLACES;
        assert_int_equal(try_all(herds[i].hosts, herds[i].queues, herds[i].depth), herds[i].hosts);
    }
}

static void herd__too_large_has_as_many_hosts_as_there_is_room_for(void **state)
{
    (void)state;
    int up = 0;
    name_hosts(40, false); /* each of 65 connections: 1,024 places are for 15 */
    for (int i = 0; i < 4; i++) {
        const int before = up;
        up = try_all(40, IO_QUEUES, 128);
        assert_true(up >= before);
    }
    assert_in_range(up, 13, 15);
}

static void expected__are_as_many_as_controllers_may_have(void **state)
{
    (void)state;
    assert_true(come_and_have_controller("192.0.2.66"));
    assert_true(come_for_io("192.0.2.7", DEPTH)); /* it has none */
    for (int i = 0; i < 200; i++)
        assert_true(come_for_io("192.0.2.66", DEPTH));
    assert_int_equal(entries_there(), ADMIN_DEPTH + (IO_QUEUES + 1) * DEPTH + NVT_CROWD_OF_ADDRESS);
    for (int i = 2; i < 2 + IO_QUEUES; i++)
        assert_int_equal(connections[i].entries, DEPTH);
    connections[0].is_ending = true;
    for (int i = 0; i < 200; i++)
        assert_true(come_for_io("192.0.2.66", DEPTH));
    assert_int_equal(entries_there(), ADMIN_DEPTH + (IO_QUEUES + 1) * DEPTH + NVT_CROWD_OF_ADDRESS);
}

static void have_controllers(const char *address, int controllers)
{
    for (int i = 0; i < controllers; i++)
        assert_true(come_and_have_controller(address));
}

/* Controllers that may have many I/O queues, of which none says Connect. */
static void expected__have_few_entries_of_one_address(void **state)
{
    (void)state;
    places = 4 * PLACES;
    have_controllers("192.0.2.66", 24);
    for (int i = 0; i < 1330; i++)
        assert_true(come_for_io("192.0.2.66", DEPTH));
    assert_int_equal(entries_there(), 24 * ADMIN_DEPTH + NVT_CROWD_EXPECTED_OF_ADDRESS);
    assert_int_equal(connections[24].entries, 0); /* the oldest */
    assert_int_equal(connections[count - 1].entries, DEPTH);
}

static void expected__of_many_addresses_keep_no_host_away(void **state)
{
    (void)state;
    char address[24];
    int kept = 0;
    places = 4 * PLACES;
    takes_its_time = true;
    for (int i = 0; i < 2000; i++) {
        snprintf(address, sizeof(address), "198.51.100.%d", i % 20);
        if (i < 20)
            have_controllers(address, 3);
        (void)come_for_io(address, DEPTH);
        if (i == 1000)
            have_controllers("192.0.2.7", 1);
        if (i >= 1000 && i < 1000 + IO_QUEUES - 1)
            assert_true(come_for_io("192.0.2.7", 128));
        if (i % 100 == 99)
            let_ending_go();
    }
    assert_true(entries_there() < NVT_CROWD_EXPECTED_BOUND + NVT_CROWD_BOUND);
    for (int i = 0; i < count; i++)
        kept += !strcmp(connections[i].address, "192.0.2.7") && connections[i].entries &&
                !connections[i].is_ending;
    assert_int_equal(kept, IO_QUEUES);
}

static void proven__of_one_address_leave_completions(void **state)
{
    (void)state;
    places = 4 * PLACES;
    while (come("192.0.2.66", DEPTH, true))
        ;
    assert_in_range(entries_there(), 980 << 10, 1030 << 10);
    assert_true(come_and_have_controller("192.0.2.7"));
    for (int i = 0; i < IO_QUEUES; i++)
        assert_true(come_for_io("192.0.2.7", DEPTH));
}

static void expected__that_are_ending_hold_up_nobody(void **state)
{
    (void)state;
    char address[24];
    for (int i = 0; i < 4; i++) { /* each with more entries than all may have before proof */
        snprintf(address, sizeof(address), "192.0.2.%d", i);
        assert_true(come_and_have_controller(address));
        for (int j = 0; j < IO_QUEUES; j++)
            assert_true(come_for_io(address, DEPTH));
    }
    for (int i = 0; i < count; i++) {
        connections[i].is_ending = true;
        connections[i].is_proven = false;
    }
    assert_true(come("192.0.2.1", ADMIN_DEPTH, false));
}

static void unproven__stay_a_second_where_their_going_helps_nobody(void **state)
{
    (void)state;
    char address[24];
    assert_true(come("192.0.2.7", ADMIN_DEPTH, false));
    now_ns = 0;
    for (int i = 1; i < PLACES; i++) { /* the last places are for new addresses */
        snprintf(address, sizeof(address), "198.51.%d.%d", i / 200, i % 200);
        assert_true(come(address, 128, true));
    }
    assert_false(come("192.0.2.8", ADMIN_DEPTH, false));
    assert_int_equal(connections[0].entries, ADMIN_DEPTH);
    now_ns = 2 * SECOND_NS;
    assert_false(come("192.0.2.8", ADMIN_DEPTH, false));
    assert_int_equal(connections[0].entries, 0);
    assert_true(come("192.0.2.8", ADMIN_DEPTH, false));
}

/* ---- addresses ---- */

static void address__of_ipv6_is_the_network(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
        {"2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"}, /* the same host, a day later */
        {"2001:db8:1:3::1", "2001:db8:1:3::/64"},
        {"fe80::3:4:5:6", "fe80::3:4:5:6"}, /* others have that network, too */
        {"::ffff:192.0.2.1", "::ffff:192.0.2.1"},
        {"::1", "::1"},
    };
    char text[64];
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct sockaddr_in6 from = {.sin6_family = AF_INET6, .sin6_port = htons(4420)};
        assert_int_equal(inet_pton(AF_INET6, texts[i][0], &from.sin6_addr), 1);
        nvt_crowd_address((const struct sockaddr *)&from, text, sizeof(text));
        assert_string_equal(text, texts[i][1]);
    }
    const struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)};
    nvt_crowd_address((const struct sockaddr *)&from, text, sizeof(text));
    assert_string_equal(text, "192.0.2.1");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        CASE(unproven__have_few_entries_of_one_address),
        CASE(unproven__have_few_entries_of_many_addresses),
        CASE(unproven__of_short_queues_count_for_more_than_they_have),
        CASE(unproven__that_are_ending_are_waited_for),
        CASE(unproven__of_few_addresses_keep_no_other_away),
        CASE(proven__of_one_address_leave_a_quarter),
        CASE(proven__never_have_to_go),
        CASE(herd__of_hosts_has_all_its_queues),
        CASE(herd__too_large_has_as_many_hosts_as_there_is_room_for),
        CASE(expected__are_as_many_as_controllers_may_have),
        CASE(expected__have_few_entries_of_one_address),
        CASE(expected__of_many_addresses_keep_no_host_away),
        CASE(proven__of_one_address_leave_completions),
        CASE(expected__that_are_ending_hold_up_nobody),
        CASE(unproven__stay_a_second_where_their_going_helps_nobody),
        CASE(address__of_ipv6_is_the_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
