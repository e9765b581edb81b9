/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The index of a snapshot: which ranges it has, what they are, and where they begin. In a volume it
 * is JSON, as the header of safetensors is (docs/snapshot-format.md). What a stranger wrote is
 * checked once, by snap_index_parse(); then it is trusted.
 */
#ifndef SW_SNAPSHOT_INDEX_H
#define SW_SNAPSHOT_INDEX_H

#include <sidewire/snapshot.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot/core/unit.h"

enum { SNAP_INDEX_BYTES_MAX = 64 << 20, SNAP_TYPE_MAX = 15 };

struct snap_index_range {
    const char *name; /* lives as long as the index */
    char type[SNAP_TYPE_MAX + 1];
    uint32_t dims;
    uint32_t unit, offset; /* where it begins */
    uint64_t bytes;
    bool is_part;               /* of a tensor that several ranks have */
    const uint64_t *shape;      /* dims of each; NULL where there are none */
    const uint64_t *at, *whole; /* NULL: it is the whole */
};

struct snap_index {
    uint32_t ranges_count;
    struct snap_index_range *ranges; /* in the order of describe */
    uint32_t *by_name;               /* their numbers, sorted by name */
    uint64_t *numbers;               /* shapes */
    char *names;
};

/* Made of ranges and their cut. 0; -ENOMEM; -EINVAL and why not: a name that is empty, too long,
 * there twice or no UTF-8, a type that is too long, a shape that has other bytes than the range. */
int snap_index_make(struct snap_index *index, const struct sw_snap_range *ranges,
                    const struct snap_cut *cut, char *why, size_t why_bytes);
/* The JSON, to be freed by free(). 0; -ENOMEM; -E2BIG: above SNAP_INDEX_BYTES_MAX. */
int snap_index_print(const struct snap_index *index, char **text, size_t *bytes);
/* Reads bytes that may be anything, of a snapshot whose units have unit_blocks[]: -EBADMSG and the
 * place where what they say cannot be. */
int snap_index_parse(struct snap_index *index, const char *text, size_t bytes, uint32_t unit_bytes,
                     uint32_t units_count, const uint32_t *unit_blocks, char *why,
                     size_t why_bytes);
void snap_index_free(struct snap_index *index);
/* The number of the range of that name, or -ENOENT. */
int64_t snap_index_find(const struct snap_index *index, const char *name);

#endif
