/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client library under cuts of power, of servers, of networks and of programs. An argument is
 * the one seed to run: `test_pmem_client_cuts 1234`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "world.h"

enum { SEEDS = 6000, SEEDS_TO_FIND_A_FAULT = 2000 };

static void client__loses_nothing(void **state)
{
    (void)state;
    struct world_result sum = {0}, one;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        world_run(seed, NO_FAULT, &one);
        if (one.failure)
            fail_msg("seed %lu: %s", (unsigned long)seed, one.failure);
        sum.cuts += one.cuts;
        sum.restarts += one.restarts;
        sum.losses += one.losses;
        sum.programs += one.programs;
        sum.acknowledged += one.acknowledged;
        sum.unknown += one.unknown;
        sum.undone += one.undone;
        sum.repeated += one.repeated;
    }
    printf("%u cuts, %u servers and %u programs started, %u connections lost; %u versions "
           "acknowledged, %u chains maybe done, %u not done, %u to be repeated\n",
           sum.cuts, sum.restarts, sum.programs, sum.losses, sum.acknowledged, sum.unknown,
           sum.undone, sum.repeated);
    /* A world in which nothing happens would prove nothing. */
    assert_true(sum.cuts > 3 * SEEDS && sum.restarts > SEEDS && sum.programs > 2 * SEEDS);
    assert_true(sum.acknowledged > 10 * SEEDS && sum.unknown > SEEDS && sum.undone > SEEDS / 10);
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

static void client__finds_a_flush_that_lies(void **state)
{
    (void)state;
    demand_found(FLUSH_LIES, "a FLUSH that does nothing");
}

static void client__finds_a_fence_that_is_ignored(void **state)
{
    (void)state;
    demand_found(FENCE_IGNORED, "a fenced WRITE before its FLUSH");
}

static void client__finds_a_word_before_its_bytes(void **state)
{
    (void)state;
    demand_found(PUBLISH_TOO_EARLY, "an ATOMIC WRITE before its FLUSH");
}

static void client__finds_who_takes_maybe_for_done(void **state)
{
    (void)state;
    demand_found(MAYBE_IS_DONE, "\"maybe done\" taken for done");
}

static void client__finds_a_flush_of_another_session(void **state)
{
    (void)state;
    demand_found(SESSION_IGNORED, "a flush in a later session");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client__loses_nothing),
        cmocka_unit_test(client__finds_a_flush_that_lies),
        cmocka_unit_test(client__finds_a_fence_that_is_ignored),
        cmocka_unit_test(client__finds_a_word_before_its_bytes),
        cmocka_unit_test(client__finds_who_takes_maybe_for_done),
        cmocka_unit_test(client__finds_a_flush_of_another_session),
    };
    if (argc > 1) {
        struct world_result result;
        world_run(strtoull(argv[1], NULL, 10), NO_FAULT, &result);
        printf("%s\n", result.failure ? result.failure : "nothing is lost");
        return result.failure != NULL;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
