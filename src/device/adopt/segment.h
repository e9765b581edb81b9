/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Segments and the table of the live ones. Two locks, taken in this order:
 *  - the move lock (adopt.c), a mutex held while pages move: creating, returning, forking;
 *  - the table lock, a spin lock over the list and the reference counts only.
 */
#ifndef SW_DEVICE_ADOPT_SEGMENT_H
#define SW_DEVICE_ADOPT_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "device/adopt/vma.h"

enum sw_segment_kind {
    SW_SEGMENT_ADOPTED, /* our file holds what was private anonymous memory */
    SW_SEGMENT_FOREIGN, /* memory that already was shared */
    SW_SEGMENT_LOST,    /* of the parent, seen from a forked child: good for nothing */
};

struct sw_segment {
    struct sw_segment *next;
    enum sw_segment_kind kind;
    uint32_t id;
    /* Under the table lock. An adopted segment with 0 is a remainder: its pages could not be moved
     * back (yet), so it stays known, for forks and for the next registration. */
    uint32_t refs;
    _Atomic uint32_t handed; /* enum sw_handed_out, of all regions it has had; it only grows */
    struct sw_arena *arena;  /* which file it shares; NULL: it has one of its own */
    int fd;
    dev_t dev; /* of fd: names the file in the process's mappings */
    ino_t ino;
    uint64_t va;
    uint64_t len_bytes;
    uint64_t offset; /* of va in the file */
    /* Where the private pages' own mapping waits, empty, for their return: as long as the segment.
     * It keeps what belongs to a mapping (MADV_*, policy, place in the file of anonymous memory),
     * so that coming back it joins its neighbours again. */
    uint64_t park;
};

/* From memory of our own, as nothing may be allocated with the move lock held: an allocator that
 * calls madvise() waits for it. NULL: no memory. */
struct sw_segment *sw_segment_new(void);
void sw_segment_delete(struct sw_segment *segment);

void sw_segments_lock(void);
void sw_segments_unlock(void);

/* The table changes with both the move lock and the table lock held, so one of them is enough to
 * read it. */
struct sw_segment *sw_segments_first(void);
void sw_segments_add(struct sw_segment *segment); /* gives it its id */
void sw_segments_remove(struct sw_segment *segment);
void sw_segments_forget_all(void); /* in a forked child */
int sw_segments_count(void);
int sw_segments_own_files(void); /* of those in no arena */
uint64_t sw_segments_adopted_bytes(void);
/* The segment that is what `vma` shows at `at`, or NULL. */
struct sw_segment *sw_segments_match(const struct sw_vma *vma, uint64_t at);

/* Whether `vma` is this segment's file at the segment's addresses; [*start, *end) is the common
 * part. */
bool sw_segment_overlap(const struct sw_segment *segment, const struct sw_vma *vma, uint64_t *start,
                        uint64_t *end);

/* Whether fd still is the segment's file: programs that close all descriptors close ours too. */
bool sw_segment_fd_valid(const struct sw_segment *segment);

/* From the lowest to the highest adopted address; start > end: there is none. */
void sw_segments_bounds(uint64_t *start, uint64_t *end);
/* Lock-free: whether an adopted segment may lie in [va, va + len). Says yes from before its first
 * page moves. */
bool sw_segments_may_overlap(uint64_t va, uint64_t len_bytes);

#endif
