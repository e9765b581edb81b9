/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The host's machine under ends of targets, of networks and of programs. An argument is the one
 * seed to run: `test_nvme_host_machine 1234`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "world.h"

enum { SEEDS = 1000, SEEDS_TO_FIND_A_FAULT = 1000 };

static void machine__loses_nothing(void **state)
{
    (void)state;
    struct world_result sum = {0}, one;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        world_run(seed, NO_FAULT, &one);
        if (one.failure)
            fail_msg("seed %lu: %s", (unsigned long)seed, one.failure);
        sum.restarts += one.restarts;
        sum.losses += one.losses;
        sum.programs += one.programs;
        sum.reconnects += one.reconnects;
        sum.ok += one.ok;
        sum.maybe += one.maybe;
        sum.undone += one.undone;
        sum.failed += one.failed;
        sum.unproved += one.unproved;
    }
    printf("%u targets and %u programs started, %u networks lost, %u reconnections; requests: %u "
           "done, %u maybe, %u not, %u failed; %u targets could not prove themselves\n",
           sum.restarts, sum.programs, sum.losses, sum.reconnects, sum.ok, sum.maybe, sum.undone,
           sum.failed, sum.unproved);
    /* A world in which nothing happens would prove nothing. */
    assert_true(sum.restarts > SEEDS / 2 && sum.losses > SEEDS && sum.reconnects > SEEDS);
    assert_true(sum.ok > 20 * SEEDS && sum.maybe > SEEDS / 2 && sum.undone > SEEDS / 10);
    assert_true(sum.failed > SEEDS / 20 && sum.unproved > SEEDS / 50);
}

static void machine__finds_faults_on_purpose(void **state)
{
    (void)state;
    static const char *const names[FAULTS] = {
        [ANSWER_EARLY] = "a WRITE that is answered before it happens",
        [SEND_READ_LATE] = "a SEND that is read after its report",
        [END_LEAKS] = "a connection that uses memory after its end",
        [OLD_LINGERS] = "commands of an old controller beside a new one",
        [MAYBE_IS_DONE] = "\"maybe done\" taken for done",
        [BUFFER_EARLY] = "memory of a request that is changed before its end",
        [CID_STUCK] = "one number for all uses of a slot",
        [RESERVATION_REPLAYED] = "a reservation that is sent again",
        [SEND_FORGOTTEN] = "a request that ends while its command is read",
        [SENT_FORGOTTEN] = "\"not done\" for what was sent",
        [KEEP_ALIVE_FORGOTTEN] = "no Keep Alive",
        [ORDER_LOST] = "requests in any order after a loss",
        [TIMER_FORGOTTEN] = "no limit of time for a command",
        [RING_FORGOTTEN] = "commands that the controller's ring has no room for",
        [PROOF_FORGOTTEN] = "a controller that need not prove itself",
    };
    for (unsigned fault = NO_FAULT + 1; fault < FAULTS; fault++) {
        struct world_result result = {0};
        uint64_t seed = 0;
        while (!result.failure && seed++ < SEEDS_TO_FIND_A_FAULT)
            world_run(seed, fault, &result);
        if (!result.failure)
            fail_msg("%s: not found", names[fault]);
        printf("%s: found by seed %lu: %s\n", names[fault], (unsigned long)seed, result.failure);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machine__loses_nothing),
        cmocka_unit_test(machine__finds_faults_on_purpose),
    };
    if (argc > 1) {
        struct world_result result;
        world_run(strtoull(argv[1], NULL, 10), NO_FAULT, &result);
        printf("%s\n", result.failure ? result.failure : "nothing is lost");
        return result.failure != NULL;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
