/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A simulated medium that keeps its contents. Lines that were stored and not flushed survive a cut
 * of the power or do not, in any subset, as lines leave caches whenever they like.
 */
#ifndef SW_TEST_PMEM_MEDIUM_H
#define SW_TEST_PMEM_MEDIUM_H

#include <stdbool.h>
#include <stdint.h>

struct medium {
    uint8_t *now, *safe; /* what processors see; what the power leaves */
    uint64_t bytes, line_bytes;
    uint64_t *seed;
    bool flush_lies; /* a fault on purpose: FLUSH does nothing */
};

/* A number below `limit`; the same seed gives the same numbers. */
uint64_t random_below(uint64_t *seed, uint64_t limit);

void medium_init(struct medium *medium, uint64_t bytes, uint64_t line_bytes, uint64_t *seed);
void medium_free(struct medium *medium);
void medium_store(struct medium *medium, uint64_t offset, const void *data, uint64_t len);
/* A store under way: any of its words of 8 bytes have happened. */
void medium_store_torn(struct medium *medium, uint64_t offset, const void *data, uint64_t len);
void medium_flush(struct medium *medium, uint64_t offset, uint64_t len);
void medium_cut(struct medium *medium);

#endif
