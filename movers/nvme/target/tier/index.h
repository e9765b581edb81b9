/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the newest bytes of FILE are that are in the log alone: an interval map, a treap whose
 * nodes lie in one array that is made when it is opened. Each node knows the oldest position
 * beneath it.
 */
#ifndef SW_MOVERS_NVME_TIER_INDEX_H
#define SW_MOVERS_NVME_TIER_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/target/tier/log.h"

struct nvt_tier_extent {
    uint64_t offset, len_bytes;         /* in FILE */
    uint64_t position;                  /* of the record */
    uint32_t payload_bytes, skip_bytes; /* the record's, and how much of it lies before these */
    enum nvt_tier_kind kind;
};

struct nvt_tier_node;

struct nvt_tier_index {
    struct nvt_tier_node *nodes; /* [0] is none */
    uint32_t root, spare, fresh; /* `fresh`: nodes from there on were never used */
    uint32_t nodes_max, used;
    uint32_t draw;
    uint64_t dirty_bytes;
};

/* 0 or -ENOMEM. */
int nvt_tier_index_open(struct nvt_tier_index *index, uint32_t extents_max);
void nvt_tier_index_close(struct nvt_tier_index *index);
/* The extents that may still be added. One put takes two at most. */
uint32_t nvt_tier_index_left(const struct nvt_tier_index *index);
/* Hides what was there before. Positions only grow from put to put. */
void nvt_tier_index_put(struct nvt_tier_index *index, const struct nvt_tier_extent *extent);
/* The first extent that ends behind `from`. False: there is none. */
bool nvt_tier_index_next(const struct nvt_tier_index *index, uint64_t from,
                         struct nvt_tier_extent *out);
/* The first that begins at `from` or behind it, of a record before `position`. */
bool nvt_tier_index_next_before(const struct nvt_tier_index *index, uint64_t from,
                                uint64_t position, struct nvt_tier_extent *out);
/* Forgets up to `count_max` extents of records before `position`. True: there may be more. */
bool nvt_tier_index_drop(struct nvt_tier_index *index, uint64_t position, uint32_t count_max);
/* The position of the oldest record that is needed; UINT64_MAX: none is. */
uint64_t nvt_tier_index_oldest(const struct nvt_tier_index *index);

#endif
