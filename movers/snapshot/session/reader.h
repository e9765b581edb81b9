/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What reads snapshots: a volume for each rank and sink, of those that could be opened. A snapshot
 * is a set of entries of the same step and token; it is whole where each rank of its world has one.
 */
#ifndef SW_SNAPSHOT_SESSION_READER_H
#define SW_SNAPSHOT_SESSION_READER_H

#include "common/rdma/fork_guard.h"
#include "sidewire/snapshot.h"
#include "snapshot/store/reader.h"
#include "snapshot/store/scrub.h"

struct snap_volume {
    char *text;
    uint32_t sink, rank, distance; /* the nearest is read first */
    struct snap_store *store;
    struct snap_store_info info; /* when it was opened, or something was forgotten */
    struct snap_image *image;    /* of what was chosen */
    struct sw_snap_error error;  /* why the image could not be opened */
    bool is_damaged;             /* a read has found it so */
};

struct snap_set {
    struct sw_snap_entry entry;
    uint8_t token[SNAP_TOKEN_BYTES];
};

struct sw_snap_reader {
    struct mover_fork_guard guard;
    struct sw_snap_options options;
    struct snap_volume *volumes; /* by rank, then the nearest first */
    uint32_t volumes_count, world;
    struct sw_snap_error left_out; /* why the first of the others could not be read */
    struct snap_set *sets;         /* newest first */
    uint32_t sets_count;
    bool is_chosen;
    struct snap_set chosen;
    const struct snap_index *indices[SW_SNAP_RANKS_MAX]; /* of the chosen one */
    uint32_t firsts[SW_SNAP_RANKS_MAX + 1];              /* number of each rank's first item */
};

/* The entry of a volume that belongs to the set; -1: it has none. */
int snap_reader_entry(const struct snap_volume *volume, const struct snap_set *set);
/* Finds the sets anew. False: no memory. */
bool snap_reader_sort(struct sw_snap_reader *reader);
/* Closes what was chosen. */
void snap_reader_leave(struct sw_snap_reader *reader);
/* Whether writing is allowed; else an error. */
enum sw_snap_status snap_reader_may_write(const struct sw_snap_reader *reader,
                                          struct sw_snap_error *error);

#endif
