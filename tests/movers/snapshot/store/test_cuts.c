/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Power cuts by seeds: test_cuts [SEEDS [FIRST]]. A seed that fails is printed, and alone it fails
 * the same way. Faults that are planted must be found by the same histories.
 */
#include <stdio.h>
#include <stdlib.h>

#include "history.h"

enum { NEWER_SEEDS = 300 };

static bool all_hold(uint64_t first, uint64_t seeds)
{
    struct history_counts counts = {0};
    uint64_t failed = 0;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        const char *why;
        if (history_run(seed, PLANT_NONE, &counts, &why))
            continue;
        printf("seed %lu: %s\n", seed, why);
        if (++failed == 10)
            break;
    }
    printf("%lu cuts; %lu snapshots acknowledged, %lu newer ones found, %lu failed, %lu writers\n",
           counts.cuts, counts.acknowledged, counts.newer, counts.failures, counts.writers);
    /* The first sixty seeds, which are those of a sanitized build, happen to have none. */
    const bool has_newer = counts.newer > 0 || seeds < NEWER_SEEDS;
    return failed == 0 && counts.acknowledged > seeds && has_newer && counts.writers > 0;
}

static bool is_found(enum history_plant plant, const char *name)
{
    enum { SEEDS_MAX = 10000 };
    struct history_counts counts = {0};
    for (uint64_t seed = 1; seed <= SEEDS_MAX; seed++) {
        const char *why;
        if (!history_run(seed, plant, &counts, &why)) {
            printf("%s: found by seed %lu: %s\n", name, seed, why);
            return true;
        }
    }
    printf("%s: not found\n", name);
    return false;
}

int main(int argc, char **argv)
{
    uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 500;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    bool is_good = all_hold(first, seeds);
    is_good &= is_found(PLANT_NO_FLUSH, "no flush before the superblock");
    is_good &= is_found(PLANT_OVER_NEWEST, "the superblock over the newest");
    is_good &= is_found(PLANT_EARLY_REUSE, "blocks given out too early");
    return is_good ? 0 : 1;
}
