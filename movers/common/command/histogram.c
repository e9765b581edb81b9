/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/histogram.h"

#include <assert.h>

#include "common/base/minmax.h"

static unsigned histogram_bucket_of(uint64_t ns)
{
    if (ns < MOVER_HISTOGRAM_STEPS)
        return (unsigned)ns;
    const unsigned shift = 57 - (unsigned)__builtin_clzll(ns); /* 64 steps: 6 bits below the top */
    const unsigned bucket =
        (shift + 1) * MOVER_HISTOGRAM_STEPS + (unsigned)(ns >> shift) - MOVER_HISTOGRAM_STEPS;
    return bucket < MOVER_HISTOGRAM_BUCKETS ? bucket : MOVER_HISTOGRAM_BUCKETS - 1;
}

static uint64_t middle_of(unsigned bucket)
{
    if (bucket < MOVER_HISTOGRAM_STEPS)
        return bucket;
    const unsigned shift = bucket / MOVER_HISTOGRAM_STEPS - 1;
    return ((uint64_t)(bucket % MOVER_HISTOGRAM_STEPS + MOVER_HISTOGRAM_STEPS) << shift) +
           (shift ? 1ull << (shift - 1) : 0);
}

void mover_histogram_add(struct mover_histogram *histogram, uint64_t ns)
{
    histogram->count++;
    histogram->sum_ns += ns;
    histogram->max_ns = ns > histogram->max_ns ? ns : histogram->max_ns;
    histogram->buckets[histogram_bucket_of(ns)]++;
}

void mover_histogram_merge(struct mover_histogram *into, const struct mover_histogram *from)
{
    into->count += from->count;
    into->sum_ns += from->sum_ns;
    into->max_ns = from->max_ns > into->max_ns ? from->max_ns : into->max_ns;
    for (unsigned i = 0; i < MOVER_HISTOGRAM_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

uint64_t mover_histogram_at(const struct mover_histogram *histogram, double share)
{
    const double wanted = share * (double)histogram->count;
    uint64_t below = 0;
    assert(share >= 0 && share <= 1);
    for (unsigned i = 0; i < MOVER_HISTOGRAM_BUCKETS; i++) {
        below += histogram->buckets[i];
        if (below && (double)below >= wanted)
            return mover_min_u64(middle_of(i), histogram->max_ns);
    }
    return histogram->max_ns;
}
