/* SPDX-License-Identifier: BSD-2-Clause */
/* How one side's memory is ordered: from axes to addresses. No I/O, no memory of its own. */
#ifndef SW_MOVERS_TRANSFER_LAYOUT_H
#define SW_MOVERS_TRANSFER_LAYOUT_H

#include <stdbool.h>

#include "sidewire/transfer_plan.h"

enum xfc_axis { XFC_LAYER, XFC_PLANE, XFC_BLOCK, XFC_TOKEN, XFC_HEAD, XFC_AXES };

struct xfc_layout {
    uint64_t stride[XFC_AXES]; /* bytes; 0 of an axis that chooses the memory */
    uint32_t step[XFC_AXES];   /* memories; 0 of the others */
    uint32_t count[XFC_AXES];
    uint32_t layer_first, head_first;
    uint32_t replicas, replica; /* ranks that have the same heads, and which of them this is */
    uint32_t parts;
    uint64_t part_bytes, vector_bytes;
    bool is_token_inside; /* of heads: a token's heads do not follow each other */
};

struct xfc_place {
    uint32_t part;
    uint64_t offset;
};

/* NULL, or why not. */
const char *xfc_layout_make(const struct sw_plan_model *model, const struct sw_plan_side *side,
                            struct xfc_layout *layout);
/* The place of numbers that are within their counts. */
struct xfc_place xfc_layout_place(const struct xfc_layout *layout, const uint32_t at[XFC_AXES]);

#endif
