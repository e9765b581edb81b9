/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A world of copies, networks and writers in which everything fails: the log's machine runs in it,
 * step by step, by one seed. Beside it stands what was acknowledged.
 */
#ifndef SW_TEST_PMEM_WORLD_H
#define SW_TEST_PMEM_WORLD_H

#include "medium.h"
#include "pmem/log/machine.h"

enum fault_on_purpose {
    NO_FAULT,
    FLUSH_LIES,          /* FLUSH does nothing */
    PUBLISH_TOO_EARLY,   /* an ATOMIC WRITE does not wait for the FLUSH before it */
    QUORUM_OF_ONE,       /* among three */
    READER_TRUSTS_TAILS, /* whoever has written them, and whether the epoch is settled or not */
};

struct world_result {
    const char *failure; /* NULL: none */
    unsigned cuts, losses, recoveries, acknowledged, extras, fenced;
    unsigned followed, missed; /* records: read by a reader, and jumps over what was trimmed */
    unsigned rewrites, late_rewrites; /* the second: not from the head */
};

void world_run(uint64_t seed, enum fault_on_purpose fault, struct world_result *out);

#endif
