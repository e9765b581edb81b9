/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One snapshot of one volume, read: each block is summed before it is handed out. All of it blocks,
 * as long as the medium makes progress (timeout_ms of the store).
 */
#ifndef SW_SNAPSHOT_READER_H
#define SW_SNAPSHOT_READER_H

#include "snapshot/store/store.h"

struct snap_image;

/* Reads root, index, small state and leaves. A leaf that is damaged is no failure of open: reads of
 * its unit say CORRUPT. CORRUPT: the root or the index is. */
enum sw_snap_status snap_image_open(struct snap_store *store, uint32_t entry,
                                    struct sw_snap_error *error, struct snap_image **image);
void snap_image_close(struct snap_image *image);

const struct snap_index *snap_image_index(const struct snap_image *image);
/* CORRUPT: it is damaged. The bytes live as long as the image. */
enum sw_snap_status snap_image_small(const struct snap_image *image, const void **bytes,
                                     size_t *length);

/* A part of a range. */
struct snap_span {
    uint32_t range;         /* by its number in the index */
    uint64_t offset, bytes; /* in the range */
    void *into;             /* any memory */
    enum sw_snap_status status;
    uint64_t bad_offset; /* in the range: the first byte of the first block that is damaged */
};

/* Reads spans, many blocks at a time. The status is that of the first that is not OK; each span has
 * its own, so that only those that failed are asked of another copy. */
enum sw_snap_status snap_image_read(struct snap_image *image, struct snap_span *spans,
                                    uint32_t spans_count, struct sw_snap_error *error);

#endif
