/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/command/bench.h"

static unsigned histogram_bucket_of(uint64_t ns)
{
    if (ns < NV_STEPS)
        return (unsigned)ns;
    const unsigned shift = 57 - (unsigned)__builtin_clzll(ns); /* 64 steps: 6 bits below the top */
    const unsigned bucket = (shift + 1) * NV_STEPS + (unsigned)(ns >> shift) - NV_STEPS;
    return bucket < NV_BUCKETS ? bucket : NV_BUCKETS - 1;
}

static uint64_t middle_of(unsigned bucket)
{
    if (bucket < NV_STEPS)
        return bucket;
    const unsigned shift = bucket / NV_STEPS - 1;
    return ((uint64_t)(bucket % NV_STEPS + NV_STEPS) << shift) + (shift ? 1ull << (shift - 1) : 0);
}

void nv_histogram_add(struct nv_histogram *histogram, uint64_t ns)
{
    histogram->count++;
    histogram->sum_ns += ns;
    histogram->max_ns = ns > histogram->max_ns ? ns : histogram->max_ns;
    histogram->buckets[histogram_bucket_of(ns)]++;
}

void nv_histogram_merge(struct nv_histogram *into, const struct nv_histogram *from)
{
    into->count += from->count;
    into->sum_ns += from->sum_ns;
    into->max_ns = from->max_ns > into->max_ns ? from->max_ns : into->max_ns;
    for (unsigned i = 0; i < NV_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

uint64_t nv_histogram_at(const struct nv_histogram *histogram, double share)
{
    const double wanted = share * (double)histogram->count;
    uint64_t below = 0;
    for (unsigned i = 0; i < NV_BUCKETS; i++) {
        below += histogram->buckets[i];
        if (below && (double)below >= wanted)
            return middle_of(i);
    }
    return histogram->max_ns;
}
