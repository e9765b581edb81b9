/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several targets that serve one medium, and a host with a path to each: drawn from a seed. A
 * command of a connection that was lost lingers at its target, and lands whenever it likes until
 * something that a host can know of has ended it. The program writes numbers that only grow, one
 * write to a block at a time: the medium may never hold one older than what was acknowledged.
 */
#ifndef SW_TEST_NVME_MULTIPATH_WORLD_H
#define SW_TEST_NVME_MULTIPATH_WORLD_H

#include <stdbool.h>
#include <stdint.h>

enum world_kind {
    KIND_TIME,   /* controllers have a command quiesce time */
    KIND_RESET,  /* they know the cross-controller reset */
    KIND_FENCED, /* a group with one owner, behind which the medium fences */
    KIND_NOTHING,
    KINDS,
};

enum world_fault {
    FAULT_NONE,
    FAULT_AT_ONCE,      /* the program wants no proof (KIND_NOTHING) */
    FAULT_LATE,         /* controllers take longer than they say (KIND_TIME) */
    FAULT_RESET_LIES,   /* a reset ends nothing (KIND_RESET) */
    FAULT_FENCE_LIES,   /* a new owner has not fenced (KIND_FENCED) */
    FAULT_EPOCH_FROZEN, /* it has, and says the old epoch: the host may never be sure */
    FAULTS,
};

struct world_sums {
    uint64_t done, maybe, undone, moved, held, losses, takeovers, refused;
};

/* NULL, or what went wrong. `sums` grows. */
const char *world_run(uint64_t seed, enum world_kind kind, enum world_fault fault,
                      struct world_sums *sums);

#endif
