/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim [--seed N] [--seeds COUNT] [--seconds S] [--twice] [--trace]: runs the worlds (world.h) of
 * COUNT seeds from N, for S seconds at most. A seed that fails is named with the command that shows
 * it again. --twice: each a second time, which must be the same.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "world.h"

static struct world world;
static struct {
    uint64_t mads, lost, both, neither, half, events;
} sums;

static void add_up(void)
{
    sums.mads += world.mads;
    sums.lost += world.lost;
    sums.both += world.both;
    sums.neither += world.neither;
    sums.half += world.half;
    sums.events += world.events;
}

static bool run_seed(uint64_t seed, bool twice, bool trace)
{
    const char *fault = world_run(&world, seed, trace);
    uint64_t hash = world.hash;
    add_up();
    if (!fault && twice && (world_run(&world, seed, false) || world.hash != hash))
        fault = "not the same a second time";
    if (fault)
        printf("seed %" PRIu64 ": %s\n  sim --seed %" PRIu64 " --trace\n", seed, fault, seed);
    return !fault;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 'n'},    {"seeds", required_argument, NULL, 'c'},
        {"seconds", required_argument, NULL, 's'}, {"twice", no_argument, NULL, '2'},
        {"trace", no_argument, NULL, 't'},         {NULL, 0, NULL, 0}};
    uint64_t first = 1, count = 1, done = 0, failed = 0;
    bool twice = false, trace = false;
    time_t end = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'n')
            first = strtoull(optarg, NULL, 0);
        else if (option == 'c')
            count = strtoull(optarg, NULL, 0);
        else if (option == 's')
            end = time(NULL) + strtol(optarg, NULL, 0);
        else if (option == '2')
            twice = true;
        else if (option == 't')
            trace = true;
        else
            return EXIT_FAILURE;
    }
    for (; done < count && failed < 5 && !(end && time(NULL) >= end); done++)
        failed += !run_seed(first + done, twice, trace);
    printf("%" PRIu64 " seeds, %" PRIu64 " failed: %" PRIu64 " MADs (%" PRIu64 " lost), %" PRIu64
           " events; connections at rest: %" PRIu64 " on both sides, %" PRIu64 " on none, %" PRIu64
           " on one that the other gave up\n",
           done, failed, sums.mads, sums.lost, sums.events, sums.both, sums.neither, sums.half);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
