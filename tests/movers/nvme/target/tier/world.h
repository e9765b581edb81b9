/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A tier on media in memory whose power can be cut: what was not flushed is there afterwards, or
 * not, or in part, by lines of 64 bytes in the log and by sectors in FILE. What is under way ends
 * in any order.
 */
#ifndef SW_TEST_TIER_WORLD_H
#define SW_TEST_TIER_WORLD_H

#include "nvme/target/tier/inside.h"

struct random {
    uint64_t state;
};

uint64_t random_next(struct random *random);
/* [0, below) */
uint32_t random_below(struct random *random, uint32_t below);

struct store_write {
    struct store_write *next;
    uint64_t at;
    uint32_t bytes;
    uint8_t data[];
};

/* Bytes that may be lost. */
struct store {
    uint64_t bytes;
    uint32_t line_bytes;
    uint8_t *live, *settled;
    struct store_write *first, **last; /* written, not settled */
};

void store_make(struct store *store, uint64_t bytes, uint32_t line_bytes);
void store_free(struct store *store);
void store_write(struct store *store, uint64_t at, const void *data, uint32_t bytes);
void store_flush(struct store *store);
void store_cut(struct store *store, struct random *random);

enum { WORLD_COPIES = 3, WORLD_PENDING = 512, WORLD_COLD = 5 };

struct world_medium {
    struct nvt_tier_medium medium; /* must be first */
    struct world *world;
    struct store *store;
    struct nvt_tier_move *pending[WORLD_PENDING];
    uint32_t pending_count;
    int error;      /* what each move ends with, 0: none fails */
    bool is_paused; /* nothing ends */
    uint32_t cold;  /* how often warm_up() has more; it may not be asked again then */
};

/* What the tier sees of hosts. Busy ones write without a pause, silent ones have stopped: then
 * nothing goes on by a tick. */
enum world_hosts { WORLD_MIXED, WORLD_BUSY, WORLD_SILENT };

struct world {
    struct random random;
    struct store file, logs[WORLD_COPIES];
    uint32_t copies;
    struct nvt_backend backend; /* FILE */
    struct nvt_io *pending[WORLD_PENDING];
    uint32_t pending_count;
    uint64_t file_writes; /* so far; of flushes: how many were done when they came */
    uint64_t fail_writes; /* of FILE, from that one on; 0: none */
    struct nvt_uring uring;
    struct world_medium *media[WORLD_COPIES];
    struct nvt_tier *tier;
    struct nvt_tier_stamp stamp;
    uint64_t cache_bytes;
    enum world_hosts hosts;
    bool lies_of_log, lies_of_file; /* faults that are planted: flushes do nothing */
    char error[512];
};

void world_make(struct world *world, uint64_t seed, uint32_t copies, uint64_t file_bytes,
                uint64_t log_bytes);
void world_free(struct world *world);
/* 0 or a negative errno. A copy with a bit in `away` cannot be had. */
int world_open(struct world *world, uint32_t away, bool makes_anew);
/* The process ends: what is under way never ends. */
void world_kill(struct world *world);
void world_power_cut(struct world *world);
/* One of what is under way ends, or the tier does something. */
void world_step(struct world *world);

#endif
