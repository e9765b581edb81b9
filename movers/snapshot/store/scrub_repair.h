/* SPDX-License-Identifier: BSD-2-Clause */
/* What was found damaged in a volume is written again, out of another one. */
#ifndef SW_SNAPSHOT_SCRUB_REPAIR_H
#define SW_SNAPSHOT_SCRUB_REPAIR_H

#include "snapshot/store/image.h"
#include "snapshot/store/state.h"

enum { SNAP_OTHERS_MAX = 8 };

/* The same snapshot on other volumes; each is loaded when it is needed. */
struct snap_others {
    struct snap_store *const *stores;
    uint32_t stores_count, but; /* the volume that is repaired */
    const struct snap_entry *entry;
    struct snap_image *images[SNAP_OTHERS_MAX];
    bool is_loaded[SNAP_OTHERS_MAX];
};

void snap_others_close(struct snap_others *others);

/* Those write in place bytes that have the sum they have to have; true: and they came back. */
bool snap_repair_block(struct snap_store *store, const struct snap_table *table, uint32_t unit,
                       uint32_t block, struct snap_others *others);
bool snap_repair_blob(struct snap_store *store, const struct snap_blob *blob,
                      struct snap_others *others);
/* Writes the snapshot again, but for the units that are whole in `table`, and has the superblock
 * name the new root. */
bool snap_repair_entry(struct snap_store *store, uint32_t number, const struct snap_table *table,
                       struct snap_others *others);

#endif
