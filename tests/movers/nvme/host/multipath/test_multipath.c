/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host with several paths in a simulated world, whose targets' commands outlive their connection.
 * An argument is the one seed to run: `test_nvme_multipath 1234`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "world.h"

enum { SEEDS = 500, SEEDS_TO_FIND_A_FAULT = 500 };

static const char *const kinds[KINDS] = {[KIND_TIME] = "quiesce time",
                                         [KIND_RESET] = "cross-controller reset",
                                         [KIND_FENCED] = "a medium that fences",
                                         [KIND_NOTHING] = "no proof"};

static struct world_sums run_seeds(enum world_kind kind, enum world_fault fault)
{
    struct world_sums sums = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const char *failure = world_run(seed, kind, fault, &sums);
        if (failure)
            fail_msg("%s, seed %lu: %s", kinds[kind], (unsigned long)seed, failure);
    }
    printf("%s: %lu done, %lu maybe, %lu not; %lu moved, %lu of them held; %lu losses, %lu "
           "takeovers\n",
           kinds[kind], sums.done, sums.maybe, sums.undone, sums.moved, sums.held, sums.losses,
           sums.takeovers);
    assert_true(sums.losses > SEEDS && sums.moved > SEEDS);
    assert_true(sums.done > 20 * SEEDS && sums.held > SEEDS / 2 && !sums.refused);
    return sums;
}

static void multipath__time_proves(void **state)
{
    (void)state;
    const struct world_sums sums = run_seeds(KIND_TIME, FAULT_NONE);
    assert_int_equal(sums.maybe, 0);
}

static void multipath__reset_proves(void **state)
{
    (void)state;
    const struct world_sums sums = run_seeds(KIND_RESET, FAULT_NONE);
    assert_true(sums.maybe < sums.held / 4);
}

static void multipath__fence_proves(void **state)
{
    (void)state;
    const struct world_sums sums = run_seeds(KIND_FENCED, FAULT_NONE);
    assert_true(sums.maybe < sums.held && sums.takeovers > SEEDS);
}

static void multipath__nobody_can_tell(void **state)
{
    (void)state;
    const struct world_sums sums = run_seeds(KIND_NOTHING, FAULT_NONE);
    assert_int_equal(sums.maybe, sums.held);
}

static void multipath__finds_faults_on_purpose(void **state)
{
    (void)state;
    static const struct {
        enum world_kind kind;
        enum world_fault fault;
        const char *name;
    } faults[] = {
        {KIND_NOTHING, FAULT_AT_ONCE, "a write that goes to another path at once"},
        {KIND_TIME, FAULT_LATE, "a controller that takes longer than it says"},
        {KIND_RESET, FAULT_RESET_LIES, "a reset that ends nothing"},
        {KIND_FENCED, FAULT_FENCE_LIES, "an owner that has not fenced"},
    };
    for (unsigned i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        struct world_sums sums = {0};
        const char *failure = NULL;
        uint64_t seed = 0;
        while (!failure && seed++ < SEEDS_TO_FIND_A_FAULT)
            failure = world_run(seed, faults[i].kind, faults[i].fault, &sums);
        if (!failure)
            fail_msg("%s: not found", faults[i].name);
        else
            printf("%s: found by seed %lu: %s\n", faults[i].name, (unsigned long)seed, failure);
    }
}

/* An owner of the same epoch is no proof, whatever it says. */
static void multipath__epoch_is_compared(void **state)
{
    (void)state;
    const struct world_sums sums = run_seeds(KIND_FENCED, FAULT_EPOCH_FROZEN);
    assert_int_equal(sums.maybe, sums.held);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(multipath__time_proves),
        cmocka_unit_test(multipath__reset_proves),
        cmocka_unit_test(multipath__fence_proves),
        cmocka_unit_test(multipath__nobody_can_tell),
        cmocka_unit_test(multipath__finds_faults_on_purpose),
        cmocka_unit_test(multipath__epoch_is_compared),
    };
    if (argc > 1) {
        struct world_sums sums = {0};
        for (unsigned kind = 0; kind < KINDS; kind++) {
            const char *failure = world_run(strtoull(argv[1], NULL, 10), kind, FAULT_NONE, &sums);
            printf("%s: %s\n", kinds[kind], failure ? failure : "nothing old lands");
        }
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
