/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads all that snapshots consist of and compares sums; repairs a volume from others of the same
 * rank. A block is written over in place only by bytes that have its sum. A root or a leaf names
 * places in its own volume, so another volume has not its bytes: what it named is written again, to
 * free blocks, and the superblock then names the new root.
 */
#ifndef SW_SNAPSHOT_SCRUB_H
#define SW_SNAPSHOT_SCRUB_H

#include "snapshot/store/reader.h"

enum snap_scrub_object {
    SNAP_SCRUB_SUPERBLOCK,
    SNAP_SCRUB_ROOT,
    SNAP_SCRUB_INDEX,
    SNAP_SCRUB_SMALL,
    SNAP_SCRUB_LEAF,
    SNAP_SCRUB_DATA,
};

struct snap_scrub_finding {
    uint32_t volume; /* which of the stores */
    enum snap_scrub_object object;
    uint64_t step;     /* of the snapshot; 0 of a superblock */
    uint64_t block;    /* of the volume */
    uint32_t unit;     /* of leaves and data */
    const char *range; /* of data: the name; else NULL */
    uint64_t offset;   /* in it */
    bool is_repaired;
};

struct snap_scrub_report {
    uint64_t read_bytes, damaged, repaired;
};

struct snap_scrub_options {
    bool repairs;         /* the stores are writable */
    const uint64_t *step; /* looks at this one alone; NULL: at all */
    /* NULL, or what is told of each thing found, and of progress: of all bytes, so many. */
    void (*found)(void *context, const struct snap_scrub_finding *finding);
    void (*progress)(void *context, uint64_t done_bytes, uint64_t all_bytes);
    void *context;
};

/* OK: all is whole, or is now. CORRUPT: something is damaged still. Others: it cannot be read. */
enum sw_snap_status snap_scrub(struct snap_store *const *stores, uint32_t stores_count,
                               const struct snap_scrub_options *options,
                               struct snap_scrub_report *report, struct sw_snap_error *error);

#endif
