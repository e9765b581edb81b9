/* SPDX-License-Identifier: BSD-2-Clause */
/* An index that grows range by range: out of those of a program, or out of JSON. */
#ifndef SW_SNAPSHOT_INDEX_BUILDER_H
#define SW_SNAPSHOT_INDEX_BUILDER_H

#include <stdbool.h>

#include "snapshot/core/index.h"

struct snap_index_item {
    const char *name;
    size_t name_bytes;
    char type[SNAP_TYPE_MAX + 1];
    uint32_t dims, unit, offset;
    uint64_t bytes;
    bool has_whole;
    uint64_t shape[SW_SNAP_DIMS_MAX], at[SW_SNAP_DIMS_MAX], whole[SW_SNAP_DIMS_MAX];
};

struct snap_index_builder {
    struct snap_index index; /* to be freed by snap_index_free() */
    size_t ranges_capacity, names_capacity, numbers_capacity;
    size_t names_bytes, numbers_count;
};

/* 0; -ENOMEM; -EBADMSG and what is wrong with the range. */
int snap_index_add(struct snap_index_builder *builder, const struct snap_index_item *item,
                   const char **why);
/* 0, and the index is the caller's; -ENOMEM; -EBADMSG: that name is there twice. */
int snap_index_finish(struct snap_index_builder *builder, struct snap_index *index,
                      const char **twice);

#endif
