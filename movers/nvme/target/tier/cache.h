/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks of FILE in memory, for reads. Which ones stay is decided as S3-FIFO does (Yang, Zhang,
 * Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction", SOSP 2023). A block enters a
 * small queue, a tenth of the memory. One that nobody reads again there leaves, and only its number
 * is remembered for a while. One that was read again, or comes again while its number is known,
 * goes to the main queue. So a scan of all of FILE passes through the small queue.
 */
#ifndef SW_MOVERS_NVME_TIER_CACHE_H
#define SW_MOVERS_NVME_TIER_CACHE_H

#include <stdbool.h>
#include <stdint.h>

enum { NVT_TIER_CACHE_BLOCK = 4096 };

struct nvt_tier_cache;

/* NULL: no memory. */
struct nvt_tier_cache *nvt_tier_cache_open(uint64_t bytes);
void nvt_tier_cache_close(struct nvt_tier_cache *cache);
/* True: all of it was there. */
bool nvt_tier_cache_read(struct nvt_tier_cache *cache, uint64_t offset, uint64_t len_bytes,
                         uint8_t *to);
/* Before FILE is asked; what changes until the answer comes is known by it. */
uint32_t nvt_tier_cache_version(const struct nvt_tier_cache *cache);
/* What FILE has answered. Nothing is kept that may have changed since. */
void nvt_tier_cache_fill(struct nvt_tier_cache *cache, uint64_t offset, uint64_t len_bytes,
                         const uint8_t *data, uint32_t version);
/* It changes. */
void nvt_tier_cache_forget(struct nvt_tier_cache *cache, uint64_t offset, uint64_t len_bytes);
void nvt_tier_cache_counts(const struct nvt_tier_cache *cache, uint64_t *bytes, uint64_t *hits,
                           uint64_t *misses);

#endif
