/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/core/layout.h"

#include <string.h>

enum { BLOCKS_MAX = 1 << 26, PARTS_MAX = 1 << 16, HEADS_MAX = 1 << 16 };

static const char letters[XFC_AXES + 1] = "LPBTH";

/* The axes in their order, each once, and how many of them choose the memory. */
static bool read_order(const char *order, enum xfc_axis axes[XFC_AXES], uint32_t *outside)
{
    uint32_t count = 0, seen = 0;
    *outside = 0;
    for (const char *at = order; *at; at++) {
        const char *letter = strchr(letters, *at);
        if (*at == '/') {
            if (strchr(at + 1, '/') || !count)
                return false;
            *outside = count;
            continue;
        }
        if (!letter || count == XFC_AXES || seen & 1u << (letter - letters))
            return false;
        axes[count] = (enum xfc_axis)(letter - letters);
        seen |= 1u << axes[count++];
    }
    for (uint32_t i = 0; i < *outside; i++)
        if (axes[i] != XFC_LAYER && axes[i] != XFC_PLANE)
            return false;
    return count == XFC_AXES;
}

static const char *split_heads(const struct sw_plan_model *model, const struct sw_plan_side *side,
                               struct xfc_layout *layout)
{
    const uint32_t heads = model->heads, ranks = side->ranks;
    if (!ranks || side->rank >= ranks)
        return "there is no such rank";
    if (ranks > heads ? ranks % heads : heads % ranks)
        return "heads and ranks: neither divides the other";
    layout->count[XFC_HEAD] = ranks > heads ? 1 : heads / ranks;
    layout->replicas = ranks > heads ? ranks / heads : 1;
    layout->replica = side->rank % layout->replicas;
    layout->head_first = side->rank / layout->replicas * layout->count[XFC_HEAD];
    return NULL;
}

static const char *count_axes(const struct sw_plan_model *model, const struct sw_plan_side *side,
                              struct xfc_layout *layout)
{
    if (!model->layers || !model->planes || model->planes > 2 || !model->heads ||
        model->heads > HEADS_MAX || !model->head_elements || !model->element_bytes)
        return "a model has layers, one or two planes, heads, and elements of some bytes";
    if (!side->block_tokens || !side->blocks || side->blocks > BLOCKS_MAX)
        return "a memory has blocks, at most 2^26, and these have tokens";
    if (side->layer_first >= model->layers || side->layers > model->layers - side->layer_first)
        return "the model has no such layers";
    layout->layer_first = side->layer_first;
    layout->count[XFC_LAYER] = side->layers ? side->layers : model->layers - side->layer_first;
    layout->count[XFC_PLANE] = model->planes;
    layout->count[XFC_BLOCK] = side->blocks;
    layout->count[XFC_TOKEN] = side->block_tokens;
    layout->vector_bytes = (uint64_t)model->head_elements * model->element_bytes;
    return split_heads(model, side, layout);
}

const char *xfc_layout_make(const struct sw_plan_model *model, const struct sw_plan_side *side,
                            struct xfc_layout *layout)
{
    enum xfc_axis axes[XFC_AXES];
    uint32_t outside;
    memset(layout, 0, sizeof(*layout));
    if (!side->order || !read_order(side->order, axes, &outside))
        return "an order is the letters L, P, B, T, H, each once, with at most L and P before a /";
    const char *why = count_axes(model, side, layout);
    if (why)
        return why;
    uint64_t bytes = layout->vector_bytes, parts = 1;
    for (uint32_t i = XFC_AXES; i-- > 0;) {
        const enum xfc_axis axis = axes[i];
        layout->is_token_inside |= axis == XFC_HEAD && layout->stride[XFC_TOKEN];
        if (i < outside)
            layout->step[axis] = (uint32_t)parts;
        else
            layout->stride[axis] = bytes;
        uint64_t *total = i < outside ? &parts : &bytes;
        if (__builtin_mul_overflow(*total, layout->count[axis], total) || bytes > INT64_MAX ||
            parts > PARTS_MAX)
            return "the memory would have too many bytes or parts";
    }
    layout->parts = (uint32_t)parts;
    layout->part_bytes = bytes;
    return NULL;
}

struct xfc_place xfc_layout_place(const struct xfc_layout *layout, const uint32_t at[XFC_AXES])
{
    struct xfc_place place = {.part = 0};
    for (int axis = 0; axis < XFC_AXES; axis++) {
        place.part += at[axis] * layout->step[axis];
        place.offset += at[axis] * layout->stride[axis];
    }
    return place;
}
