/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A random history of snapshots on a disk, a power cut amid it, and what has to be true after:
 * each snapshot that was acknowledged and not forgotten is there, bit by bit, or the newer one that
 * was being committed as well; and the next snapshots work.
 */
#ifndef SW_TEST_SNAPSHOT_HISTORY_H
#define SW_TEST_SNAPSHOT_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

/* Faults that are planted: the test must find each. */
enum history_plant {
    PLANT_NONE,
    PLANT_NO_FLUSH,    /* the flush before the superblock does nothing */
    PLANT_OVER_NEWEST, /* the superblock is written over the newest one */
    PLANT_EARLY_REUSE, /* what is forgotten is given out before a superblock says so */
};

struct history_counts {
    uint64_t acknowledged, newer, cuts, writers, failures;
};

/* False: something was not true; `why` says what. */
bool history_run(uint64_t seed, enum history_plant plant, struct history_counts *counts,
                 const char **why);

#endif
