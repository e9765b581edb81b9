/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Block lists for transfer.h, made of how two sides have split and laid out one KV cache. No device
 * and no connection is needed: it is arithmetic.
 *
 * A cache has a vector of `head_elements` elements for each layer, plane (keys, values), token and
 * KV head. Each side keeps some of them: a rank has a share of the heads, and perhaps of the
 * layers. Tokens lie in blocks, which a table of the request names. How a rank's memory is ordered
 * is said by five letters, the outermost first:
 *
 *   L layer   P plane: 0 keys, 1 values   B block   T token in its block   H head
 *
 * Letters before a slash are not axes of one memory, but say which memory: "L/PBTH" has one for
 * each layer, "LP/BTH" one for each layer's keys and one for its values. L and P may.
 *
 *   L/PBTH   vLLM with FlashAttention, NHD      L/PBHT   the same, HND
 *   L/BPTH   vLLM with FlashInfer, NHD          BLPTH    a block has all layers
 */
#ifndef SIDEWIRE_TRANSFER_PLAN_H
#define SIDEWIRE_TRANSFER_PLAN_H

#include "sidewire/transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The same on both sides. */
struct sw_plan_model {
    uint32_t layers;
    uint32_t planes; /* 2: keys and values; 1: one latent for both */
    uint32_t heads;  /* KV heads of all ranks together, replicas not counted */
    uint32_t head_elements;
    uint32_t element_bytes;
};

struct sw_plan_side {
    const char *order;
    /* Tensor parallelism, and which rank this is. A rank has heads / ranks heads, one behind the
     * other. With more ranks than heads each head has ranks / heads ranks in a row, which all have
     * it. One number has to divide the other. */
    uint32_t ranks, rank;
    uint32_t layer_first, layers; /* that this rank has (pipeline parallelism); `layers` 0: all */
    uint32_t block_tokens;
    uint32_t blocks; /* of the whole memory of the rank */
    /* Which block has tokens 0 to block_tokens - 1 of the request, which the next... NULL: 0, 1, 2.
     * The table may be as long as `blocks`. */
    const uint32_t *table;
    uint32_t table_count;
};

/* How much memory that side has: so many parts, each of so many bytes. INVALID, with a reason,
 * where a number is 0, an order is none, or bytes do not fit into 64 bits. */
SW_XFER_PUBLIC enum sw_xfer_status sw_plan_memory(const struct sw_plan_model *model,
                                                  const struct sw_plan_side *side,
                                                  struct sw_xfer_error *error, uint32_t *parts,
                                                  uint64_t *part_bytes);

/* Block i of the source is block i of the target. `part` of an extent counts the side's memories in
 * their order: of "LP/..." it is (layer - layer_first) x planes + plane. Both lists are NULL where
 * this target needs nothing of this source. */
struct sw_plan {
    struct sw_xfer_extent *source, *target; /* for sw_xfer_blocks_local() and _remote() */
    uint32_t source_count, target_count;
    uint32_t blocks; /* pairs that are left after joining */
    uint64_t bytes;
};

/* What `source` has of `tokens` tokens from `first_token` on, and `target` is to have. Pairs are in
 * the order of the source's memory, and none lies behind another one on both sides: those are one.
 * Where several sources have a head, each target gets it from one of them, in turn: the plans of
 * all sources for one target cover its share once. */
SW_XFER_PUBLIC enum sw_xfer_status
sw_plan_reshard(const struct sw_plan_model *model, const struct sw_plan_side *source,
                const struct sw_plan_side *target, uint64_t first_token, uint64_t tokens,
                struct sw_xfer_error *error, struct sw_plan *plan);
SW_XFER_PUBLIC void sw_plan_free(struct sw_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
