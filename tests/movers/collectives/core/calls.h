/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of ranks, drawn by a seed, what each rank contributes, and what has to come of it: computed
 * here from the definitions, by nothing of the product.
 */
#ifndef SW_TEST_COLLECTIVES_CALLS_H
#define SW_TEST_COLLECTIVES_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidewire/coll.h"

enum { CALLS_RANKS_MAX = 64 };

/* What a call of all ranks is drawn from. */
struct calls_draw {
    uint64_t seed;
    uint32_t size;
    int kind;                       /* -1: any */
    uint32_t count_max;             /* elements of a block, or of a buffer */
    const uint16_t *ranks, *places; /* of the tree; NULL: each rank is at its own place */
    /* Calls of somebody else, in place of those that are drawn; NULL: none. */
    struct sw_coll_call (*recorded)(uint64_t number, uint32_t rank, uint64_t *counts,
                                    uint64_t *recv_counts);
};

uint64_t calls_random(uint64_t *state);
uint64_t calls_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/* The call of `number` as that rank makes it, without buffers. `counts` have room for the ranks. */
struct sw_coll_call calls_of(const struct calls_draw *draw, uint64_t number, uint32_t rank,
                             uint64_t *counts, uint64_t *recv_counts);
/* That rank's `send`. */
void calls_contribute(const struct calls_draw *draw, uint64_t number, uint32_t rank, void *send);
enum calls_order {
    CALLS_TREE,
    CALLS_LINE, /* in place of the tree: from the first rank to the last */
    CALLS_RING, /* of a slice: from the rank behind its owner on, past the last one to rank 0 */
};

/* What has to be in its `recv`. RING: slices have so many elements, and owners by turns. */
void calls_expect(const struct calls_draw *draw, uint64_t number, uint32_t rank,
                  enum calls_order order, uint64_t slice, void *recv);
/* Bytes of both buffers. */
uint64_t calls_send_bytes(const struct sw_coll_call *call, uint32_t rank, uint32_t size);
uint64_t calls_recv_bytes(const struct sw_coll_call *call, uint32_t rank, uint32_t size);

#endif
