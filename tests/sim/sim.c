/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs seeded worlds of the simulator. A failure prints the one command that shows it again.
 *
 *   sim [--seed N] [--seeds COUNT] [--seconds S] [--trace] [--twice]
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "scenario.h"

struct sim_args {
    uint64_t seed, seeds;
    double seconds; /* stop after so long; 0: not */
    bool trace, twice;
};

static void usage(const char *name, int status)
{
    fprintf(status ? stderr : stdout,
            "usage: %s [--seed N] [--seeds COUNT] [--seconds S] [--trace] [--twice]\n"
            "  --seed N       the first seed (default 1)\n"
            "  --seeds COUNT  how many (default 1)\n"
            "  --seconds S    stop after so long\n"
            "  --trace        print each event\n"
            "  --twice        run each seed twice and compare the traces\n",
            name);
    exit(status);
}

static struct sim_args parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},
        {"seeds", required_argument, NULL, 'n'},
        {"seconds", required_argument, NULL, 't'},
        {"trace", no_argument, NULL, 'v'},
        {"twice", no_argument, NULL, '2'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct sim_args args = {.seed = 1, .seeds = 1};
    char *end = NULL;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 's':
            args.seed = strtoull(optarg, &end, 0);
            break;
        case 'n':
            args.seeds = strtoull(optarg, &end, 0);
            break;
        case 't':
            args.seconds = strtod(optarg, &end);
            break;
        case 'v':
            args.trace = true;
            break;
        case '2':
            args.twice = true;
            break;
        default:
            usage(argv[0], option == 'h' ? 0 : 2);
        }
        if (end && *end)
            usage(argv[0], 2);
    }
    if (optind != argc)
        usage(argv[0], 2);
    return args;
}

static double elapsed_s(void)
{
    static struct timespec begin;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!begin.tv_sec)
        begin = now;
    return (double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9;
}

int main(int argc, char **argv)
{
    struct sim_args args = parse(argc, argv);
    struct scenario_result sum = {0};
    uint64_t ran = 0;
    elapsed_s();
    for (; ran < args.seeds && (args.seconds <= 0 || elapsed_s() < args.seconds); ran++) {
        struct scenario_result result;
        scenario_run(args.seed + ran, args.trace, &result);
        if (args.twice && !result.fault) {
            struct scenario_result again;
            scenario_run(args.seed + ran, false, &again);
            if (again.hash != result.hash)
                result.fault = "two runs of one seed differ";
        }
        if (result.fault) {
            printf("seed %llu: %s: %s\n  again: %s --seed %llu --trace\n",
                   (unsigned long long)(args.seed + ran), result.fault, result.detail, argv[0],
                   (unsigned long long)(args.seed + ran));
            return 1;
        }
        sum.requests += result.requests;
        sum.packets += result.packets;
        sum.lost += result.lost;
        sum.resent += result.resent;
        sum.virtual_ns += result.virtual_ns;
        sum.hash ^= result.hash;
    }
    printf("%llu seeds from %llu: %llu requests, %llu packets, %llu of them lost, %llu sent again, "
           "%.1f virtual seconds in %.1f s, trace %016llx\n",
           (unsigned long long)ran, (unsigned long long)args.seed, (unsigned long long)sum.requests,
           (unsigned long long)sum.packets, (unsigned long long)sum.lost,
           (unsigned long long)sum.resent, (double)sum.virtual_ns / 1e9, elapsed_s(),
           (unsigned long long)sum.hash);
    return 0;
}
