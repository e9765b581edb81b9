/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The snapshots of one rank on one medium: a volume. docs/snapshot-format.md has its bytes, and
 * when a snapshot counts.
 *
 *     snap_store_open(medium, &options, &error, &store);       reads what is there; blocks
 *     snap_store_begin(store, &plan, &error);                  reserves room; no I/O
 *     snap_store_unit(store, &unit);                           ... unit.done(): its data are free
 *     snap_store_prepare(store, prepared, context);            ... prepared(): it counts here
 *     snap_store_forget(store, 1u << 0, forgotten, context);   when all sinks and ranks have it
 *     snap_store_poll(store);                                  drives all of it
 *
 * One thread uses a store and its medium, and polls. Functions that have a done callback call it
 * from snap_store_poll() only. At most one of prepare, forget and abort is under way at a time.
 *
 * A block is written if its sum differs from that of the newest snapshot of the volume: same range
 * name, same place in the range. A block of zeroes is never written.
 */
#ifndef SW_SNAPSHOT_STORE_H
#define SW_SNAPSHOT_STORE_H

#include <sidewire/snapshot.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot/core/index.h"
#include "snapshot/core/medium.h"
#include "snapshot/core/sum.h"
#include "snapshot/core/unit.h"

enum { SNAP_TOKEN_BYTES = 16, SNAP_ENTRIES_MAX = 32, SNAP_SMALL_BYTES_MAX = 16 << 20 };

struct snap_store;

struct snap_store_options {
    bool is_writable;     /* counts the epoch up: the writer before is fenced */
    bool make_anew;       /* what is there is given up, even where it is no volume */
    uint32_t rank, world; /* of a writer */
    uint64_t seed;        /* of a volume that is made; 0: drawn */
    const char *writer;   /* host, program, process; up to 55 bytes */
    uint32_t timeout_ms;  /* of what blocks, without any progress; 0: 10 s */
};

/* Blocks. Takes the medium over: snap_store_close() closes it, or this where it fails. FORMAT,
 * VERSION, OTHER_RANK (the volume is of another rank), LOST, FENCED, CORRUPT, NO_ROOM, NO_MEMORY,
 * SYSTEM. */
enum sw_snap_status snap_store_open(struct snap_medium *medium,
                                    const struct snap_store_options *options,
                                    struct sw_snap_error *error, struct snap_store **store);
/* Units that are under way end by done(); prepare, forget and abort tell nothing any more. */
void snap_store_close(struct snap_store *store);
/* Runs the medium, and what waited for it. */
void snap_store_poll(struct snap_store *store);
struct snap_medium *snap_store_medium(const struct snap_store *store);

/* A snapshot that the volume has, in the newest superblock. */
struct snap_entry {
    uint64_t step;
    uint8_t token[SNAP_TOKEN_BYTES];
    uint32_t rank, world;
    uint64_t root_block, root_bytes;
    uint64_t taken_at; /* CLOCK_REALTIME, seconds */
    uint64_t state_bytes;
    uint8_t root_digest[32];
};

struct snap_store_info {
    uint32_t rank, world;
    uint64_t seed; /* captures sum with it: base blocks with another seed are written again */
    uint64_t epoch, generation;
    uint8_t identity[16];
    char writer[57];
    uint64_t blocks, free_blocks; /* not in use by any snapshot of either superblock */
    uint32_t damaged_superblocks; /* 0 or 1, at open */
    uint32_t entries_count;
    const struct snap_entry *entries; /* oldest first; they live until the next poll or call */
    /* About the snapshot that was begun last: */
    uint64_t moved_bytes;   /* written to the medium in all */
    uint64_t changed_bytes; /* in blocks that differ from the base's */
    uint64_t flushed_ns;    /* when its bytes were flushed, before the superblock; 0: not yet */
};

void snap_store_info_of(const struct snap_store *store, struct snap_store_info *info);

/* How large a volume has to be for that many snapshots of a state that changes as a whole: give it
 * keep + 1. */
uint64_t snap_store_bytes_for(const struct snap_cut *cut, uint64_t index_bytes,
                              uint64_t small_bytes, uint32_t snapshots);

/* ---- writing a snapshot ---- */

struct snap_plan {
    uint64_t step;
    uint8_t token[SNAP_TOKEN_BYTES];
    uint64_t taken_at;
    const struct snap_cut *cut;     /* lives until prepared or abandoned */
    const struct snap_index *index; /* the same */
    const void *small;              /* copied */
    uint32_t small_bytes;
    uint64_t seed; /* of the sums of the units: the same on all sinks */
};

/* NO_ROOM: the worst case, all blocks changed, does not fit. BUSY: one is under way. */
enum sw_snap_status snap_store_begin(struct snap_store *store, const struct snap_plan *plan,
                                     struct sw_snap_error *error);

/* A captured unit. The caller's until it is given, and again after done(). */
struct snap_store_unit {
    uint32_t number;
    const void *data;            /* whole blocks, in memory that the medium may use */
    const struct snap_sum *sums; /* of each block; not looked at after done() */
    /* OK, or why the snapshot has failed on this medium. */
    void (*done)(struct snap_store_unit *unit, enum sw_snap_status status);
    void *context;
    /* The store's. */
    struct snap_store_unit *next;
    uint32_t at, read_at, ios;
    enum sw_snap_status status;
};

/* Never blocks. A unit may come again before prepare, once the one before is done: the later one
 * counts. */
void snap_store_unit(struct snap_store *store, struct snap_store_unit *unit);

typedef void (*snap_store_done)(void *context, enum sw_snap_status status,
                                const struct sw_snap_error *error);

/* All units have been given, each at least once: makes the snapshot count. INVALID: units are
 * missing. CORRUPT: the medium has other bytes than it was given. FENCED, LOST, SYSTEM. */
void snap_store_prepare(struct snap_store *store, snap_store_done done, void *context);
/* Gives up the snapshot that was begun: units under way end, then done(). Nothing of it counts. */
void snap_store_abort(struct snap_store *store, snap_store_done done, void *context);
/* Leaves out snapshots, bit i: entries[i] of info. When it is done their room is free, and both
 * superblocks name the same ones: also where none is left out. */
void snap_store_forget(struct snap_store *store, uint32_t which, snap_store_done done,
                       void *context);
/* How the snapshot that was begun has failed here, and at which block; "": it has not. */
const char *snap_store_failure(const struct snap_store *store);
/* Nothing is begun or under way. */
bool snap_store_is_idle(const struct snap_store *store);

#endif
