/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The log under cuts of power, of networks and of writers. An argument is the one seed to run:
 * `test_pmem_log_cuts 1234`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "world.h"

enum { SEEDS = 6000, SEEDS_TO_FIND_A_FAULT = 2000, BLOCKS = 32, BLOCK_BYTES = 192 };

static void log__loses_nothing(void **state)
{
    (void)state;
    struct world_result sum = {0}, one;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        world_run(seed, NO_FAULT, &one);
        if (one.failure)
            fail_msg("seed %lu: %s", (unsigned long)seed, one.failure);
        sum.cuts += one.cuts;
        sum.losses += one.losses;
        sum.recoveries += one.recoveries;
        sum.acknowledged += one.acknowledged;
        sum.extras += one.extras;
        sum.fenced += one.fenced;
        sum.followed += one.followed;
        sum.missed += one.missed;
        sum.rewrites += one.rewrites;
        sum.late_rewrites += one.late_rewrites;
    }
    printf("%u cuts, %u connections lost, %u recoveries, %u acknowledged, %u found beyond, %u "
           "writers fenced; %u copies written again, %u of these not from the head; %u records "
           "followed, %u times trimmed before\n",
           sum.cuts, sum.losses, sum.recoveries, sum.acknowledged, sum.extras, sum.fenced,
           sum.rewrites, sum.late_rewrites, sum.followed, sum.missed);
    /* A world in which nothing happens would prove nothing. */
    assert_true(sum.cuts > 10 * SEEDS && sum.recoveries > 2 * SEEDS);
    assert_true(sum.acknowledged > 2 * SEEDS && sum.extras > SEEDS / 100 && sum.fenced > 0);
    assert_true(sum.late_rewrites > SEEDS / 100 && sum.followed > SEEDS && sum.missed > SEEDS / 10);
}

static void demand_found(enum fault_on_purpose fault, const char *name)
{
    struct world_result result;
    for (uint64_t seed = 1; seed <= SEEDS_TO_FIND_A_FAULT; seed++) {
        world_run(seed, fault, &result);
        if (!result.failure)
            continue;
        printf("%s: found by seed %lu: %s\n", name, (unsigned long)seed, result.failure);
        return;
    }
    fail_msg("%s: not found", name);
}

static void log__finds_a_flush_that_lies(void **state)
{
    (void)state;
    demand_found(FLUSH_LIES, "a FLUSH that does nothing");
}

static void log__finds_a_tail_before_its_record(void **state)
{
    (void)state;
    demand_found(PUBLISH_TOO_EARLY, "an ATOMIC WRITE before its FLUSH");
}

static void log__finds_a_quorum_of_one(void **state)
{
    (void)state;
    demand_found(QUORUM_OF_ONE, "a quorum of one");
}

static void log__finds_a_reader_that_trusts_tails(void **state)
{
    (void)state;
    demand_found(READER_TRUSTS_TAILS, "a reader that goes by tail words alone");
}

/* Blocks are written and flushed: false if one was acknowledged and is not there after a cut. */
static bool blocks_survive(uint64_t seed, bool flush_lies)
{
    uint8_t blocks[BLOCKS][BLOCK_BYTES];
    struct medium medium;
    bool survive = true;
    medium_init(&medium, (uint64_t)BLOCKS * 4096, seed % 2 ? 64 : 4096, &seed);
    medium.flush_lies = flush_lies;
    const unsigned acknowledged = (unsigned)random_below(&seed, BLOCKS);
    for (unsigned i = 0; i <= acknowledged; i++) {
        memset(blocks[i], (int)random_below(&seed, 256), BLOCK_BYTES);
        /* Not at the start of a line. */
        if (i == acknowledged) {
            medium_store_torn(&medium, i * 4096 + 40, blocks[i], BLOCK_BYTES);
            break;
        }
        medium_store(&medium, i * 4096 + 40, blocks[i], BLOCK_BYTES);
        medium_flush(&medium, i * 4096 + 40, BLOCK_BYTES);
    }
    medium_cut(&medium);
    for (unsigned i = 0; i < acknowledged; i++)
        survive = survive && !memcmp(medium.now + i * 4096 + 40, blocks[i], BLOCK_BYTES);
    medium_free(&medium);
    return survive;
}

static void write_flush__survives(void **state)
{
    (void)state;
    unsigned lost = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        assert_true(blocks_survive(seed, false));
        lost += !blocks_survive(seed, true);
    }
    assert_true(lost > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_flush__survives),
        cmocka_unit_test(log__loses_nothing),
        cmocka_unit_test(log__finds_a_flush_that_lies),
        cmocka_unit_test(log__finds_a_tail_before_its_record),
        cmocka_unit_test(log__finds_a_quorum_of_one),
        cmocka_unit_test(log__finds_a_reader_that_trusts_tails),
    };
    if (argc > 1) {
        struct world_result result;
        world_run(strtoull(argv[1], NULL, 10), NO_FAULT, &result);
        printf("%s\n", result.failure ? result.failure : "nothing is lost");
        return result.failure != NULL;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
