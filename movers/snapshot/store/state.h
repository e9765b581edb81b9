/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A store from within. Its files:
 *
 *     volume.c   opens it: both superblocks, the base, the room; and writes superblocks
 *     write.c    takes units of the snapshot that is under way
 *     commit.c   makes it count: the steps of prepare, forget and abort
 *     store.c    what callers ask, and errors
 *
 * A block may be given out unless a snapshot of either superblock uses it (marks[]), or the
 * snapshot under way.
 */
#ifndef SW_SNAPSHOT_STATE_H
#define SW_SNAPSHOT_STATE_H

#include "snapshot/core/blocks.h"
#include "snapshot/store/room.h"
#include "snapshot/store/superblock.h"
#include "snapshot/store/table.h"
#include "snapshot/store/task.h"

enum { SNAP_MARKS_MAX = 2 * SNAP_ENTRIES_MAX + 1, SNAP_NO_UNIT = UINT32_MAX };

/* The blocks that a snapshot uses. */
struct snap_marks {
    struct snap_entry entry;
    uint64_t *bits; /* NULL: not in use */
};

struct snap_slot {
    bool is_valid, is_empty, is_cut; /* as it was read, or written, last */
    struct snap_superblock superblock;
    uint8_t bytes[SNAP_BLOCK_BYTES];
};

enum snap_phase {
    SNAP_PHASE_END, /* a script is done */
    SNAP_PHASE_DRAIN,
    SNAP_PHASE_LEAVES,
    SNAP_PHASE_BLOBS,
    SNAP_PHASE_CHECK_DATA,
    SNAP_PHASE_CHECK_LEAVES,
    SNAP_PHASE_CHECK_BLOBS,
    SNAP_PHASE_FLUSH,
    SNAP_PHASE_FENCE,
    SNAP_PHASE_SUPERBLOCK,
    SNAP_PHASE_SETTLE, /* the flush that makes the superblock count */
};

/* Something that lies in one run of blocks: the index, the small state, the root. */
struct snap_object {
    struct snap_blob blob;
    uint8_t *bytes;  /* NULL: there is none, or it is the base's */
    bool is_written; /* it is fresh */
};

enum { SNAP_OBJECT_INDEX, SNAP_OBJECT_SMALL, SNAP_OBJECT_ROOT, SNAP_OBJECTS };

/* The snapshot under way. */
struct snap_write {
    bool is_begun;
    enum sw_snap_status status; /* the first failure of a unit */
    struct snap_table table;
    struct snap_entry entry;
    uint32_t *base_unit; /* of each unit: the one it is compared with; SNAP_NO_UNIT */
    bool *has_come;      /* of each unit */
    uint32_t missing;
    uint32_t *leaf_block; /* of each unit: the room of its leaf */
    bool *is_leaf_used;
    struct snap_object objects[SNAP_OBJECTS];
    uint64_t *marks;
    uint64_t seed, changed_blocks, written_before;
    struct snap_sum zero_sum;
    /* A repair takes the place of that entry, and its units are in any memory. Otherwise this is
     * SNAP_ENTRIES_MAX. */
    uint32_t replaces;
};

/* Blocks of a unit that are written by one io, to places in a row. */
struct snap_row {
    uint32_t count, next; /* the block behind the last one that was looked at */
    uint16_t blocks[SNAP_UNIT_BLOCKS_MAX];
};

struct snap_store {
    struct snap_medium *medium;
    struct snap_tasks tasks;
    bool is_writable;
    bool is_broken;             /* what the medium has is not known any more: only close is left */
    struct sw_snap_error error; /* of the script or snapshot that is under way */
    char writer[SNAP_WRITER_BYTES + 1];

    struct snap_slot slots[SNAP_SUPERBLOCKS];
    struct snap_slot seen[SNAP_SUPERBLOCKS]; /* as the medium has them, to find another writer */
    uint8_t scratch[SNAP_SUPERBLOCKS * SNAP_BLOCK_BYTES];
    uint32_t newest;                            /* of the slots */
    uint32_t damaged_superblocks, damaged_slot; /* as they were at open */
    struct snap_room room;
    struct snap_marks marks[SNAP_MARKS_MAX];
    bool has_base, is_base_stale; /* stale: it is not the newest any more, so it is read anew */
    struct snap_table base;

    struct snap_write write;
    const struct snap_table *reading; /* of the image that is being read */
    struct snap_blocks_key key;       /* of the seed of the unit that was read last */
    bool has_key;

    /* Units that were given, in order; before `filling` all ios of theirs are under way. */
    struct snap_store_unit *units, **units_end, *filling;
    struct snap_row row;

    /* The script that is under way. */
    const enum snap_phase *phase; /* NULL: none */
    bool is_abort;
    uint64_t cursor, cursor_at; /* of the phase */
    bool is_phase_submitted;
    struct snap_superblock next; /* what is written next */
    uint32_t target;             /* the slot it is written to */
    uint64_t flushed_ns;         /* of the snapshot that was begun last */
    bool is_superblock_at_risk;  /* it may or may not be on the medium */
    snap_store_done done;
    void *context;
};

static inline const struct snap_superblock *snap_store_newest(const struct snap_store *store)
{
    return &store->slots[store->newest].superblock;
}

static inline struct snap_store *snap_store_of(struct snap_task *task)
{
    return (struct snap_store *)((char *)task->tasks - offsetof(struct snap_store, tasks));
}

/* Keeps the first failure of the script or snapshot, with a text. */
void snap_store_fail(struct snap_store *store, int result, const char *what);
void snap_store_fail_block(struct snap_store *store, int result, uint64_t block, const char *what);
enum sw_snap_status snap_store_status_of(int result);

/* Takes both superblocks out of their bytes. True: one is of another version. */
bool snap_slots_decode(const uint8_t *bytes, uint64_t volume_blocks,
                       struct snap_slot slots[SNAP_SUPERBLOCKS]);
/* The slot that the next superblock goes to. */
uint32_t snap_slots_target(const struct snap_store *store);
/* The superblock in `next` counts now. */
void snap_slots_apply(struct snap_store *store);
/* Those two block. */
int snap_run_io(struct snap_store *store, enum snap_io_kind kind, uint64_t block, uint64_t blocks,
                void *data);
/* Writes the superblock in `next` to the slot that is next. */
int snap_superblock_write(struct snap_store *store);
/* What is in use by the snapshots of both superblocks; forgets marks that are not needed. */
void snap_store_recount(struct snap_store *store);
/* One that is free: there are as many as both superblocks can have. */
struct snap_marks *snap_marks_unused(struct snap_store *store);
/* Reads the newest snapshot as the base, if there is another one than that. */
int snap_store_load_base(struct snap_store *store);

enum sw_snap_status snap_write_begin(struct snap_store *store, const struct snap_plan *plan,
                                     struct sw_snap_error *error);
/* The same snapshot as that entry, once more: units that are whole in `base`, which is taken, cost
 * nothing. Step, token and time are those of the entry. */
enum sw_snap_status snap_write_begin_repair(struct snap_store *store, const struct snap_plan *plan,
                                            uint32_t replaces, struct snap_table *base,
                                            struct sw_snap_error *error);
/* Submits what is left of the units. */
void snap_write_pump(struct snap_store *store);
/* Reads back what was written of the units; a unit is done when it is proved. */
void snap_units_read_back(struct snap_store *store);
bool snap_unit_is_proved(const struct snap_store *store, const struct snap_store_unit *unit);
void snap_write_finish_units(struct snap_store *store);
/* Its room is free again, and its memory. */
void snap_write_end(struct snap_store *store);

void snap_commit_start(struct snap_store *store, const enum snap_phase *script,
                       snap_store_done done, void *context);
void snap_commit_step(struct snap_store *store);

#endif
