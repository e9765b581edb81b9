/* SPDX-License-Identifier: BSD-2-Clause */
/* Latencies of many requests in little memory, for percentiles. */
#ifndef SW_MOVERS_HISTOGRAM_H
#define SW_MOVERS_HISTOGRAM_H

#include <stdint.h>

/* Latencies in ns: each power of two in 64 steps, so 1.6 % wide. */
enum { MOVER_HISTOGRAM_STEPS = 64, MOVER_HISTOGRAM_BUCKETS = 64 * 40 };

struct mover_histogram {
    uint64_t count, sum_ns, max_ns;
    uint32_t buckets[MOVER_HISTOGRAM_BUCKETS];
};

void mover_histogram_add(struct mover_histogram *histogram, uint64_t ns);
void mover_histogram_merge(struct mover_histogram *into, const struct mover_histogram *from);
/* The latency that `share` (0 to 1) of all requests stay below. */
uint64_t mover_histogram_at(const struct mover_histogram *histogram, double share);

#endif
