/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the snapshots of a volume say that its blocks have. A leaf that could not be read for a time
 * did not keep its blocks: so two snapshots may name one block, with other bytes. Such a block is
 * never repaired: that would damage the later snapshot.
 */
#ifndef SW_SNAPSHOT_SCRUB_CLAIMS_H
#define SW_SNAPSHOT_SCRUB_CLAIMS_H

#include "snapshot/store/state.h"

struct snap_claims {
    uint64_t *values;    /* of each block: part of its sum; 0: nobody has named it */
    uint64_t *conflicts; /* a bit for each block */
};

/* 0, -ENOMEM, or why the medium is of no use any more. */
int snap_claims_make(struct snap_claims *claims, struct snap_store *store);
void snap_claims_free(struct snap_claims *claims);
/* Two snapshots want other bytes there. */
bool snap_claims_conflict(const struct snap_claims *claims, uint64_t block, uint64_t blocks);

#endif
