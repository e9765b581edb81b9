/* SPDX-License-Identifier: BSD-2-Clause */
/* An image from within: for scrub, which reads by units. */
#ifndef SW_SNAPSHOT_IMAGE_H
#define SW_SNAPSHOT_IMAGE_H

#include "snapshot/store/reader.h"
#include "snapshot/store/table.h"

struct snap_image {
    struct snap_store *store;
    struct snap_entry entry;
    struct snap_table table;
};

/* Without an index, too: CORRUPT only where the root is damaged. */
enum sw_snap_status snap_image_load(struct snap_store *store, const struct snap_entry *entry,
                                    struct sw_snap_error *error, struct snap_image **image);

#endif
