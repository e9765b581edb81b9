/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A medium in memory whose power can be cut: what was not flushed is there afterwards, or not, or
 * in part, by sectors of 512 bytes. Ios end in any order.
 */
#ifndef SW_TEST_SNAPSHOT_DISK_H
#define SW_TEST_SNAPSHOT_DISK_H

#include "snapshot/core/medium.h"

struct random {
    uint64_t state;
};

uint64_t random_next(struct random *random);
/* [0, below) */
uint32_t random_below(struct random *random, uint32_t below);
bool random_is(struct random *random, uint32_t percent);

struct disk_write {
    uint64_t offset;
    uint32_t bytes;
    uint8_t *data;
};

struct disk {
    struct random random;
    uint64_t bytes;
    uint8_t *live;          /* what reads see */
    uint8_t *settled;       /* what is there after a power cut in any case */
    struct disk_write *log; /* done, not settled */
    uint32_t log_count, log_capacity;
    uint64_t ios;            /* that were executed */
    uint64_t cut_at;         /* power is cut before the io of that number; 0: never */
    uint32_t cut_superblock; /* or soon after that one is written; 0: never */
    bool is_cut;
    uint64_t fail_at;       /* that io fails with EIO; 0: none */
    bool skips_first_flush; /* a planted fault: the flush before a superblock does nothing */
    uint64_t written_bytes;
    uint64_t open_count;
    bool has_fencing; /* a new handle ends those before */
    bool reads_back;
    uint32_t flips_write; /* a bit flips on the way in the write of that number from now on */
};

void disk_make(struct disk *disk, uint64_t seed, uint64_t bytes);
void disk_free(struct disk *disk);
/* A handle, as media are opened. */
struct snap_medium *disk_open(struct disk *disk);
/* After a cut, or in place of one: the disk as it is found afterwards. What was under way by open
 * handles has had its part in it, and never ends. */
void disk_power_cut(struct disk *disk, struct snap_medium *const *handles, uint32_t handles_count);

#endif
