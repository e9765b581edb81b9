/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * In which order the log goes to FILE. It knows no clock and does no I/O: it says what comes next.
 *
 * A batch takes the records before a position. It writes to FILE what the index still has of them,
 * sorted by where it lies and joined; of each block that is the newest, and what a newer record has
 * replaced is left to a later batch. FILE is flushed before the index forgets them, and the head
 * slot comes last: a crash in between finds the log as it was, and writes the same bytes again.
 *
 * Readers may have found a record, or read FILE before the batch wrote there. So the index forgets
 * nothing before the readers from before the flush have ended, and no place of the log is used
 * again before the readers have ended that may have found it in the index.
 */
#ifndef SW_MOVERS_NVME_TIER_DESTAGE_H
#define SW_MOVERS_NVME_TIER_DESTAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/target/tier/index.h"

enum {
    NVT_TIER_MARKS = 128,
    NVT_TIER_PIECES = 64,
    NVT_TIER_EASY_OF_RING = 4, /* a log that is fuller than a quarter is destaged */
};

#define NVT_TIER_AGE_NS 5000000000ull /* a block waits no longer while there is little to do */

enum nvt_tier_step {
    NVT_TIER_IDLE,
    NVT_TIER_OPENING, /* the slot says that FILE changes */
    NVT_TIER_WRITING,
    NVT_TIER_SYNCING, /* FILE */
    NVT_TIER_STAMPING,
    NVT_TIER_DRAINING, /* readers from before */
    NVT_TIER_DROPPING, /* extents, from the index */
    NVT_TIER_DRAINING_FOUND,
    NVT_TIER_TRIMMING, /* the slot has the new head */
};

/* A place between two records, and when the log had come so far. */
struct nvt_tier_mark {
    uint64_t position, check, epoch; /* of the record before it */
    uint64_t time_ns;
};

struct nvt_tier_destage {
    enum nvt_tier_step step;
    struct nvt_tier_mark until; /* of the batch */
    uint64_t cursor;            /* in FILE */
    bool is_hurried;            /* all goes out: detach */
    uint64_t mark_bytes;        /* between two marks */
    uint32_t marks_count;
    struct nvt_tier_mark marks[NVT_TIER_MARKS];
};

void nvt_tier_destage_init(struct nvt_tier_destage *destage, uint64_t ring_bytes);
/* The log has come so far. */
void nvt_tier_destage_note(struct nvt_tier_destage *destage, const struct nvt_tier_mark *mark);
/* Since when a record that lies there may have waited. */
uint64_t nvt_tier_destage_since(const struct nvt_tier_destage *destage, uint64_t position,
                                uint64_t now_ns);
/* Begins a batch, if it is time: what lies between head and `done`, which is all that is answered.
 * `is_awaited`: writes wait for room. */
bool nvt_tier_destage_begin(struct nvt_tier_destage *destage, const struct nvt_tier_index *index,
                            uint64_t ring_bytes, uint64_t head, const struct nvt_tier_mark *done,
                            bool is_awaited);
/* The extents of the next write to FILE: neighbours, of `bytes_max` at most. 0: the batch has no
 * more. The first of them may be too long, where it has no payload. */
uint32_t nvt_tier_destage_take(struct nvt_tier_destage *destage, const struct nvt_tier_index *index,
                               uint64_t bytes_max, struct nvt_tier_extent pieces[NVT_TIER_PIECES]);
/* How many writes to FILE may be under way, of `runs_max`, while hosts write, too. */
uint32_t nvt_tier_destage_depth(uint64_t ring_bytes, uint64_t used_bytes, uint32_t runs_max);
/* How much hosts write into the log, while they are at it, for each write to FILE that begins. */
uint64_t nvt_tier_destage_pace(uint64_t ring_bytes, uint64_t used_bytes);
/* The step is done; returns the next one. */
enum nvt_tier_step nvt_tier_destage_next(struct nvt_tier_destage *destage);

#endif
