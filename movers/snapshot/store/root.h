/* SPDX-License-Identifier: BSD-2-Clause */
/* The codec of roots: docs/snapshot-format.md. A root is checked once, as a whole, then trusted. */
#ifndef SW_SNAPSHOT_ROOT_H
#define SW_SNAPSHOT_ROOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot/core/digest.h"
#include "snapshot/store/store.h"

enum {
    SNAP_ROOT_HEAD_BYTES = 192,
    SNAP_ROOT_UNIT_BYTES = 40,
    SNAP_ROOT_BYTES_MAX = SNAP_ROOT_HEAD_BYTES + SNAP_UNITS_MAX * SNAP_ROOT_UNIT_BYTES,
};

/* Some bytes in a run of blocks, and their SHA-256. */
struct snap_blob {
    uint64_t block, bytes; /* 0: there are none */
    uint8_t digest[SNAP_DIGEST_BYTES];
};

struct snap_root {
    uint64_t step;
    uint8_t token[SNAP_TOKEN_BYTES];
    uint32_t rank, world, unit_bytes, units_count;
    struct snap_blob index, small;
    uint64_t state_bytes;
};

/* Where the leaf of a unit lies. */
struct snap_root_unit {
    uint32_t block, bytes;
    uint8_t digest[SNAP_DIGEST_BYTES];
};

/* Behind the superblocks, and within the volume. */
bool snap_run_is_inside(uint64_t block, uint64_t bytes, uint64_t volume_blocks);

static inline uint64_t snap_root_bytes(uint32_t units_count)
{
    return SNAP_ROOT_HEAD_BYTES + (uint64_t)units_count * SNAP_ROOT_UNIT_BYTES;
}

/* `bytes` has room for snap_root_bytes() of the units. */
void snap_root_encode(const struct snap_root *root, const struct snap_root_unit *units,
                      uint8_t *bytes);
/* 0; -EBADMSG and what is wrong. After that snap_root_unit_at() needs no checks. */
int snap_root_decode(const uint8_t *bytes, size_t length, uint64_t volume_blocks,
                     struct snap_root *root, const char **why);
struct snap_root_unit snap_root_unit_at(const uint8_t *bytes, uint32_t number);

#endif
