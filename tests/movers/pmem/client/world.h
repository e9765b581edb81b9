/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that keeps cells on a region by the client library: a word with the number of a
 * version, and two slots, of which the word's is the valid one. Power, server, network and the
 * program itself fail, by one seed. Beside it stands what was acknowledged.
 */
#ifndef SW_TEST_PMEM_CLIENT_WORLD_H
#define SW_TEST_PMEM_CLIENT_WORLD_H

#include <stdbool.h>
#include <stdint.h>

enum fault_on_purpose {
    NO_FAULT,
    FLUSH_LIES,        /* FLUSH does nothing */
    FENCE_IGNORED,     /* a device lets WRITEs pass a FLUSH in spite of a fence */
    PUBLISH_TOO_EARLY, /* an ATOMIC WRITE does not wait for the FLUSH before it */
    MAYBE_IS_DONE,     /* the program takes "maybe done" for done */
    SESSION_IGNORED,   /* it flushes in one session what it has written in another */
};

struct world_result {
    const char *failure; /* NULL: none */
    unsigned cuts, restarts, losses, programs, acknowledged, unknown, undone, repeated;
};

void world_run(uint64_t seed, enum fault_on_purpose fault, struct world_result *out);

#endif
