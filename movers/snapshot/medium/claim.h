/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The last block of a region: who writes to the volume before it. The medium has it for itself; the
 * store's volume ends before it. docs/snapshot-format.md has its bytes.
 */
#ifndef SW_SNAPSHOT_CLAIM_H
#define SW_SNAPSHOT_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "snapshot/core/medium.h"

enum { SNAP_WRITER_BYTES = 56, SNAP_CLAIM_ID_BYTES = 16 };

struct snap_claim {
    uint64_t epoch; /* counts the writers; 0: there never was one */
    uint64_t beat;  /* moves as long as the writer lives */
    bool is_held;   /* false: the last one has let go of it */
    bool is_torn;   /* it was read while it was written, or a writer was killed amid that */
    uint8_t id[SNAP_CLAIM_ID_BYTES]; /* of the writer: drawn */
    char writer[SNAP_WRITER_BYTES];
};

void snap_claim_encode(const struct snap_claim *claim, uint8_t block[SNAP_BLOCK_BYTES]);
/* False: it is none. One of zeroes is a claim of epoch 0. */
bool snap_claim_decode(const uint8_t block[SNAP_BLOCK_BYTES], struct snap_claim *claim);
/* The same writer's, and whole. */
bool snap_claim_is_of(const struct snap_claim *claim, const struct snap_claim *other);
/* What follows `before`, by a writer of that name; NULL: this process. False: no random bytes. */
bool snap_claim_follow(const struct snap_claim *before, const char *writer,
                       struct snap_claim *claim);

#endif
