/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pmem: as a medium. Each session of a writer is alone in the region: the server has ended what was
 * left of earlier ones, of its own, too. Before a session is used, the claim is read in it. Where
 * another writer's is there, this one is fenced.
 *
 * One that takes over is alone, writes its claim, and is alone once more. So a session that has
 * read its own claim is the only one that did: an older writer's ended with the second time, or
 * read the new claim.
 */
#ifndef SW_SNAPSHOT_PMEM_H
#define SW_SNAPSHOT_PMEM_H

#include <sidewire/pmem.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/rdma/fork_guard.h"
#include "snapshot/medium/claim.h"
#include "snapshot/medium/ios.h"
#include "snapshot/medium/place.h"

enum {
    SNAP_PMEM_CHAINS = 32,
    SNAP_BEAT_MS = 200,
    /* Own memory for blocks: the own claim, one that is read, and the first two of the volume. */
    SNAP_PMEM_OWN_BYTES = 4 * SNAP_BLOCK_BYTES,
};

/* A chain under way has up to so many ios: those that follow each other are flushed together. */
struct snap_pmem_chain {
    struct snap_pmem *pmem; /* NULL: it is free */
    struct snap_line ios;
};

struct snap_pmem {
    struct snap_medium medium; /* must be first */
    struct mover_fork_guard guard;
    struct snap_place place; /* what the options point into */
    struct sw_pmem_options options;
    struct sw_pmem *pmem; /* NULL: the medium has ended */
    struct sw_pmem_mem *own_mem;
    uint8_t *own;
    struct snap_claim claim;
    uint64_t claim_at;
    struct snap_memories memories;
    struct snap_line waiting, ended;
    struct snap_pmem_chain chains[SNAP_PMEM_CHAINS];
    uint64_t session;   /* in which the claim was read; 0: none */
    bool is_looking;    /* the claim is being read */
    bool is_beating;    /* it is being written */
    bool is_persistent; /* flushes are */
    uint64_t beat_ns;
    int timer_fd;
};

/* Connects, looks who writes, and takes the claim. 0, or a negative errno and a sentence. */
int snap_pmem_take(struct snap_pmem *p, const struct snap_medium_options *options, char *error,
                   size_t error_bytes);
/* Writes that the claim is free; waits a moment at most. */
void snap_pmem_let_go(struct snap_pmem *p);
/* The errno of a status that has ended a medium. */
int snap_pmem_errno(enum sw_pmem_status status);

#endif
