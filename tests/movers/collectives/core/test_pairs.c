/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages from rank to rank in a simulated network: each rank posts what it sends and receives in
 * an order drawn by a seed, and one may die amid it. With an argument: so many times the seeds.
 */
#include "pairs_world.h"

#include <stdio.h>
#include <stdlib.h>

static unsigned long seeds_more = 1;

static void pairs__every_message_comes_in_its_order(void **state)
{
    (void)state;
    uint32_t over = 0;
    for (uint32_t size = 1; size <= RANKS_MAX; size++)
        for (uint64_t seed = 1; seed <= 12 * seeds_more; seed++) {
            struct world *world = make_world(seed, size, MESSAGES_MAX / (1 + size / 3), NO_FAULT);
            exchange_all(world);
            if (*world->failure)
                fail_msg("%u ranks, seed %lu: %s", size, (unsigned long)seed, world->failure);
            over += world->over;
            free_world(world);
        }
    assert_true(over > 10000);
}

/* A send of a short message that is waited for, then a receive, in a ring and with itself. */
static void pairs__a_ring_of_short_sends_goes_on(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= RANKS_MAX; size++) {
        struct world *world = make_world(size, size, 3, NO_FAULT);
        uint32_t turn = 0;
        for (uint32_t k = 0; k < world->messages; k++) {
            for (uint32_t i = 0; i < size; i++)
                make_message(world, i, (i + 1) % size, k, SHORT);
            for (uint32_t i = 0; i < size; i++)
                post_side(world, i, (i + 1) % size, k, true);
            /* Nobody receives until all sends are over. */
            while (world->over < size * (2 * k + 1) && turn++ < TURNS_MAX) {
                rank_turns(world, &world->nodes[world_draw(world, size)]);
                network_turns(world);
            }
            assert_int_equal(world->over, size * (2 * k + 1));
            for (uint32_t i = 0; i < size; i++)
                post_side(world, i, (i + 1) % size, k, false);
            while (world->over < size * (2 * k + 2) && turn++ < TURNS_MAX) {
                rank_turns(world, &world->nodes[world_draw(world, size)]);
                network_turns(world);
            }
        }
        assert_int_equal(world->over, size * 6);
        assert_string_equal(world->failure, "");
        free_world(world);
    }
}

/* A receiver tells of places that it has freed when there are four. So with four messages that
 * nobody has received a fifth still goes, and with eight a ninth does not: docs/collectives.md. */
static void pairs__five_short_ones_wait_for_nobody(void **state)
{
    (void)state;
    for (uint32_t received = 0; received <= COLL_RING; received++) {
        const uint32_t messages = received + COLL_RING + 1;
        struct world *world = make_world(received + 1, 2, messages, NO_FAULT);
        for (uint32_t k = 0; k < messages; k++) {
            make_message(world, 0, 1, k, SHORT);
            post_side(world, 0, 1, k, true);
            if (k < received)
                post_side(world, 0, 1, k, false);
        }
        for (uint32_t turn = 0; turn < 3000; turn++) {
            rank_turns(world, &world->nodes[turn % 2]);
            network_turns(world);
        }
        assert_string_equal(world->failure, "");
        assert_in_range(world->over, 2 * received + 5, 2 * received + COLL_RING);
        free_world(world);
    }
}

/* Either comes first, and either is short or long: the same words, and no byte has changed. */
static void differ_once(uint64_t seed, uint64_t sent, uint64_t awaited)
{
    char expected[200];
    struct world *world = make_world(seed, 3, 2, NO_FAULT);
    make_message(world, 1, 2, 0, 8);
    make_message(world, 1, 2, 1, sent);
    struct message *message = &world->all[1][2][1];
    message->received.count = awaited;
    if (sent == awaited)
        message->received.type = SW_COLL_I8;
    for (uint32_t turn = 0; turn < 3000; turn++) {
        post_next(world, 1, 2, world_draw(world, 2));
        rank_turns(world, &world->nodes[world_draw(world, 3)]);
        network_turns(world);
    }
    snprintf(expected, sizeof(expected),
             "message 2 from rank 1 to rank 2: rank 1 sends count %lu of type u8, rank 2 awaits "
             "%lu of %s",
             (unsigned long)sent, (unsigned long)awaited, sent == awaited ? "i8" : "u8");
    assert_string_equal(world->failure, expected);
    for (uint32_t i = 0; i < BYTES_MAX + GUARD; i++)
        assert_int_equal(message->to[i], GUARD_BYTE);
    free_world(world);
}

static void pairs__sides_that_differ_are_told(void **state)
{
    (void)state;
    static const uint64_t cases[][2] = {{8, 9},   {9, 8},   {0, 1},    {1, 0},     {8, 300},
                                        {300, 8}, {0, 300}, {300, 0},  {300, 301}, {301, 300},
                                        {8, 8},   {60, 60}, {300, 300}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (uint64_t seed = 1; seed <= 8; seed++)
            differ_once(seed, cases[i][0], cases[i][1]);
}

static void pairs__what_is_waited_for_has_a_name(void **state)
{
    (void)state;
    char text[160];
    struct world *world = make_world(1, 3, 1, NO_FAULT);
    make_message(world, 1, 2, 0, 300);
    struct coll_pairs *sender = &world->nodes[1].machine, *receiver = &world->nodes[2].machine;
    post_side(world, 1, 2, 0, true);
    assert_true(coll_pair_waits(&sender->pairs[2]) && !coll_pair_waits(&sender->pairs[0]));
    coll_transfer_waits_text(sender, coll_pair_first(&sender->pairs[2]), text, sizeof(text));
    assert_string_equal(text, "rank 2 has not received message 1 from rank 1");
    post_side(world, 1, 2, 0, false);
    coll_transfer_waits_text(receiver, coll_pair_first(&receiver->pairs[1]), text, sizeof(text));
    assert_string_equal(text, "rank 1 has not sent message 1 to rank 2");
    free_world(world);
}

/* ---- a death ---- */

/* All that can still come has. */
static void go_on_to_the_end(struct world *world)
{
    for (uint32_t round = 0; round < 150; round++) {
        for (uint32_t from = 0; from < world->size; from++)
            for (uint32_t to = 0; to < world->size; to++)
                for (int is_send = 0; is_send <= 1; is_send++)
                    if ((is_send ? from : to) != world->dead)
                        post_next(world, from, to, is_send);
        for (uint32_t turn = 0; turn < 8 * world->size; turn++)
            network_turns(world);
        for (uint32_t rank = 0; rank < world->size; rank++)
            rank_turns(world, &world->nodes[rank]);
    }
}

/* Two ranks that live, and have not failed, owe each other nothing. What they have posted is over,
 * or can be taken away. */
static void check_survivors(struct world *world)
{
    for (uint32_t one = 0; one < world->size; one++) {
        struct coll_pairs *machine = &world->nodes[one].machine;
        for (uint32_t other = 0; other < world->size; other++) {
            const struct coll_pair *pair = &machine->pairs[other];
            const bool are_well = one != world->dead && other != world->dead && !machine->status &&
                                  !world->nodes[other].machine.status;
            if (are_well && !(list_is_empty(&pair->sends) && list_is_empty(&pair->recvs)))
                say_failure(world, "survivors wait for each other");
        }
        while (coll_pairs_drop(machine))
            continue;
        for (uint32_t other = 0; other < world->size; other++)
            if (!list_is_empty(&machine->pairs[other].sends) ||
                !list_is_empty(&machine->pairs[other].recvs))
                say_failure(world, "a message was left behind");
    }
}

static struct world *exchange_with_a_death(uint64_t seed, uint32_t size, enum fault fault)
{
    struct world *world = make_world(seed, size, 12, fault);
    const uint64_t death = world_draw(world, 1500), later = world_draw(world, 300);
    make_all_messages(world);
    for (uint64_t turn = 0; turn < death; turn++)
        world_turns(world);
    let_die(world, (uint32_t)world_draw(world, size));
    for (uint64_t turn = 0; turn < later; turn++)
        world_turns(world);
    world->is_death_known = true;
    go_on_to_the_end(world);
    check_survivors(world);
    return world;
}

static void pairs__what_survivors_have_is_whole(void **state)
{
    (void)state;
    uint32_t failed = 0;
    for (uint32_t size = 2; size <= RANKS_MAX; size++)
        for (uint64_t seed = 1; seed <= 10 * seeds_more; seed++) {
            struct world *world = exchange_with_a_death(seed, size, NO_FAULT);
            if (*world->failure)
                fail_msg("%u ranks, seed %lu: %s", size, (unsigned long)seed, world->failure);
            for (uint32_t rank = 0; rank < size; rank++)
                failed += world->nodes[rank].machine.status == SW_COLL_RANK_GONE;
            free_world(world);
        }
    assert_true(failed > 20);
}

static void pairs__find_faults_on_purpose(void **state)
{
    (void)state;
    static const char *const names[FAULTS] = {
        [RING_OVERRUN] = "a ring that is overrun",
        [NOTE_OVERTAKES] = "a note that is seen before its payload",
        [WRITTEN_EARLY] = "data that are said to be there",
        [SETTLES_EARLY] = "a source that is given back too early",
        [OLD_NOTE] = "an old note that is taken again",
        [OLD_ROOM] = "an old room that is taken again",
        [PUSH_TOO_LONG] = "a byte beyond the end",
        [SHORTER_UNSEEN] = "sides that are not compared",
        [DEATH_HAS_GAPS] = "what a dead rank has said without its data",
    };
    for (unsigned fault = NO_FAULT + 1; fault < FAULTS; fault++) {
        bool is_found = false;
        for (uint64_t seed = 1; seed <= 40 && !is_found; seed++) {
            struct world *world = fault == DEATH_HAS_GAPS
                                      ? exchange_with_a_death(seed, 3, DEATH_HAS_GAPS)
                                      : make_world(seed, 2, MESSAGES_MAX, (enum fault)fault);
            if (fault == SHORTER_UNSEEN) {
                make_message(world, 0, 1, 0, 300);
                world->all[0][1][0].received.count = 200;
                for (uint32_t turn = 0; turn < 3000; turn++) {
                    post_next(world, 0, 1, turn % 2);
                    rank_turns(world, &world->nodes[turn % 2]);
                    network_turns(world);
                    world->messages = 1;
                }
            } else if (fault != DEATH_HAS_GAPS) {
                exchange_all(world);
            }
            is_found = *world->failure;
            if (is_found)
                printf("%s: found by seed %lu: %s\n", names[fault], (unsigned long)seed,
                       world->failure);
            free_world(world);
        }
        if (!is_found)
            fail_msg("%s: not found", names[fault]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs__every_message_comes_in_its_order),
        cmocka_unit_test(pairs__a_ring_of_short_sends_goes_on),
        cmocka_unit_test(pairs__five_short_ones_wait_for_nobody),
        cmocka_unit_test(pairs__sides_that_differ_are_told),
        cmocka_unit_test(pairs__what_is_waited_for_has_a_name),
        cmocka_unit_test(pairs__what_survivors_have_is_whole),
        cmocka_unit_test(pairs__find_faults_on_purpose),
    };
    if (argc > 1)
        seeds_more = strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
