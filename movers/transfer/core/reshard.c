/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pairs of blocks of two layouts. Tokens are taken in runs that lie within one block on both sides;
 * a run's tokens and heads make a rectangle, which is one pair, or one for each row, or for each
 * vector. Then pairs are sorted by the source's memory and joined, so what can be joined is.
 */
#include <stdio.h>
#include <stdlib.h>

#include "transfer/core/layout.h"

enum { PAIRS_MAX = 1 << 26 };

struct pair {
    struct xfc_place from, to;
    uint64_t bytes;
};

/* What is being planned. */
struct draft {
    struct xfc_layout from, to;
    const struct sw_plan_side *source, *target;
    uint32_t layer_first, layers; /* that both have */
    uint32_t head_first, heads;
    struct pair *pairs;
    uint32_t count, room;
    bool is_unsorted;
};

/* Tokens in a row that lie in one block on both sides. */
struct run {
    uint32_t from_block, from_token, to_block, to_token, tokens;
};

static enum sw_xfer_status say_why(struct sw_xfer_error *error, enum sw_xfer_status status,
                                   const char *who, const char *why)
{
    if (error) {
        error->status = status;
        snprintf(error->text, sizeof(error->text), "%s%s", who, why);
    }
    return status;
}

enum sw_xfer_status sw_plan_memory(const struct sw_plan_model *model,
                                   const struct sw_plan_side *side, struct sw_xfer_error *error,
                                   uint32_t *parts, uint64_t *part_bytes)
{
    struct xfc_layout layout;
    const char *why = xfc_layout_make(model, side, &layout);
    if (why)
        return say_why(error, SW_XFER_INVALID, "", why);
    *parts = layout.parts;
    *part_bytes = layout.part_bytes;
    return SW_XFER_OK;
}

/* ---- the request's tokens ---- */

static enum sw_xfer_status check_length(const struct sw_plan_side *side, const char *who,
                                        uint64_t tokens_end, struct sw_xfer_error *error)
{
    const uint64_t entries = side->table ? side->table_count : side->blocks;
    if (entries > side->blocks)
        return say_why(error, SW_XFER_INVALID, who, "its table is longer than its memory");
    if (tokens_end > entries * side->block_tokens)
        return say_why(error, SW_XFER_INVALID, who, "its blocks have not so many tokens");
    for (uint32_t i = 0; side->table && i < side->table_count; i++)
        if (side->table[i] >= side->blocks)
            return say_why(error, SW_XFER_INVALID, who, "its table names a block that is none");
    return SW_XFER_OK;
}

/* A block that is there twice would be written twice. */
static enum sw_xfer_status check_twins(const struct sw_plan_side *target,
                                       struct sw_xfer_error *error)
{
    enum sw_xfer_status status = SW_XFER_OK;
    if (!target->table)
        return SW_XFER_OK;
    uint8_t *seen = calloc(target->blocks / 8 + 1, 1);
    if (!seen)
        return say_why(error, SW_XFER_NO_MEMORY, "", "out of memory");
    for (uint32_t i = 0; !status && i < target->table_count; i++) {
        const uint32_t block = target->table[i];
        if (seen[block / 8] & 1 << block % 8)
            status =
                say_why(error, SW_XFER_INVALID, "the target: ", "its table names a block twice");
        seen[block / 8] |= (uint8_t)(1 << block % 8);
    }
    free(seen);
    return status;
}

static uint32_t block_of(const struct sw_plan_side *side, uint64_t token, uint32_t *within)
{
    const uint32_t number = (uint32_t)(token / side->block_tokens);
    *within = (uint32_t)(token % side->block_tokens);
    return side->table ? side->table[number] : number;
}

static void find_run(const struct draft *draft, uint64_t token, uint64_t left, struct run *run)
{
    run->from_block = block_of(draft->source, token, &run->from_token);
    run->to_block = block_of(draft->target, token, &run->to_token);
    const uint32_t from_left = draft->source->block_tokens - run->from_token;
    const uint32_t to_left = draft->target->block_tokens - run->to_token;
    run->tokens = from_left < to_left ? from_left : to_left;
    if (left < run->tokens)
        run->tokens = (uint32_t)left;
}

/* ---- pairs ---- */

static int reshard_compare_places(const struct xfc_place *one, const struct xfc_place *other)
{
    if (one->part != other->part)
        return one->part < other->part ? -1 : 1;
    return (one->offset > other->offset) - (one->offset < other->offset);
}

static int compare_pairs(const void *one, const void *other)
{
    return reshard_compare_places(&((const struct pair *)one)->from,
                                  &((const struct pair *)other)->from);
}

static bool is_behind(const struct pair *one, const struct pair *other)
{
    return one->from.part == other->from.part && one->to.part == other->to.part &&
           one->from.offset + one->bytes == other->from.offset &&
           one->to.offset + one->bytes == other->to.offset;
}

static bool reshard_add_pair(struct draft *draft, const struct pair *pair)
{
    struct pair *last = draft->count ? &draft->pairs[draft->count - 1] : NULL;
    if (last && is_behind(last, pair)) {
        last->bytes += pair->bytes;
        return true;
    }
    if (draft->count == draft->room) {
        const uint32_t room = draft->room ? draft->room * 2 : 64;
        struct pair *pairs =
            room > PAIRS_MAX ? NULL : realloc(draft->pairs, room * sizeof(*draft->pairs));
        if (!pairs)
            return false;
        draft->pairs = pairs;
        draft->room = room;
    }
    draft->is_unsorted |= draft->count && compare_pairs(&draft->pairs[draft->count - 1], pair) > 0;
    draft->pairs[draft->count++] = *pair;
    return true;
}

struct rectangle {
    uint64_t outer_count, inner_count, outer_from, outer_to, inner_from, inner_to;
};

/* Tokens and heads, the inner one as the source has it; what follows each other on both sides
 * becomes one before it is looked at. */
static struct rectangle measure_run(const struct draft *draft, const struct run *run,
                                    uint64_t *bytes)
{
    const enum xfc_axis inner = draft->from.is_token_inside ? XFC_TOKEN : XFC_HEAD;
    const enum xfc_axis outer = draft->from.is_token_inside ? XFC_HEAD : XFC_TOKEN;
    struct rectangle r = {
        .outer_count = inner == XFC_HEAD ? run->tokens : draft->heads,
        .inner_count = inner == XFC_HEAD ? draft->heads : run->tokens,
        .outer_from = draft->from.stride[outer],
        .outer_to = draft->to.stride[outer],
        .inner_from = draft->from.stride[inner],
        .inner_to = draft->to.stride[inner],
    };
    *bytes = draft->from.vector_bytes;
    if (r.inner_from == *bytes && r.inner_to == *bytes) {
        *bytes *= r.inner_count;
        r.inner_count = 1;
    }
    if (r.inner_count == 1 && r.outer_from == *bytes && r.outer_to == *bytes) {
        *bytes *= r.outer_count;
        r.outer_count = 1;
    }
    return r;
}

static bool add_run_of_plane(struct draft *draft, const struct run *run, uint32_t layer,
                             uint32_t plane)
{
    const uint32_t from_at[XFC_AXES] = {[XFC_LAYER] = layer - draft->from.layer_first,
                                        [XFC_PLANE] = plane,
                                        [XFC_BLOCK] = run->from_block,
                                        [XFC_TOKEN] = run->from_token,
                                        [XFC_HEAD] = draft->head_first - draft->from.head_first};
    const uint32_t to_at[XFC_AXES] = {[XFC_LAYER] = layer - draft->to.layer_first,
                                      [XFC_PLANE] = plane,
                                      [XFC_BLOCK] = run->to_block,
                                      [XFC_TOKEN] = run->to_token,
                                      [XFC_HEAD] = draft->head_first - draft->to.head_first};
    const struct pair first = {.from = xfc_layout_place(&draft->from, from_at),
                               .to = xfc_layout_place(&draft->to, to_at)};
    struct pair pair = first;
    const struct rectangle r = measure_run(draft, run, &pair.bytes);
    for (uint64_t i = 0; i < r.outer_count; i++)
        for (uint64_t k = 0; k < r.inner_count; k++) {
            pair.from.offset = first.from.offset + i * r.outer_from + k * r.inner_from;
            pair.to.offset = first.to.offset + i * r.outer_to + k * r.inner_to;
            if (!reshard_add_pair(draft, &pair))
                return false;
        }
    return true;
}

static bool reshard_add_run(struct draft *draft, const struct run *run)
{
    for (uint32_t layer = 0; layer < draft->layers; layer++)
        for (uint32_t plane = 0; plane < draft->from.count[XFC_PLANE]; plane++)
            if (!add_run_of_plane(draft, run, draft->layer_first + layer, plane))
                return false;
    return true;
}

static void join_pairs(struct draft *draft)
{
    uint32_t kept = 0;
    if (!draft->is_unsorted)
        return; /* they were joined as they came */
    qsort(draft->pairs, draft->count, sizeof(*draft->pairs), compare_pairs);
    for (uint32_t i = 1; i < draft->count; i++)
        if (is_behind(&draft->pairs[kept], &draft->pairs[i]))
            draft->pairs[kept].bytes += draft->pairs[i].bytes;
        else
            draft->pairs[++kept] = draft->pairs[i];
    draft->count = kept + 1;
}

/* ---- extents ---- */

static bool continues_row(const struct sw_xfer_extent *extent, const struct xfc_place *place,
                          uint64_t bytes)
{
    if (extent->part != place->part || extent->bytes != bytes || place->offset <= extent->offset)
        return false;
    return extent->count == 1 || place->offset - extent->offset == extent->stride * extent->count;
}

/* Blocks of one length at even distances are one extent. */
static struct sw_xfer_extent *reshard_make_extents(const struct draft *draft, bool is_target,
                                                   uint32_t *count)
{
    struct sw_xfer_extent *extents = calloc(draft->count, sizeof(*extents)), *last = NULL;
    *count = 0;
    for (uint32_t i = 0; extents && i < draft->count; i++) {
        const struct pair *pair = &draft->pairs[i];
        const struct xfc_place *place = is_target ? &pair->to : &pair->from;
        if (last && continues_row(last, place, pair->bytes)) {
            if (last->count++ == 1)
                last->stride = place->offset - last->offset;
            continue;
        }
        last = &extents[(*count)++];
        *last = (struct sw_xfer_extent){.part = place->part,
                                        .offset = place->offset,
                                        .bytes = pair->bytes,
                                        .stride = pair->bytes,
                                        .count = 1};
    }
    return extents;
}

static bool fill_plan(const struct draft *draft, struct sw_plan *plan)
{
    plan->blocks = draft->count;
    for (uint32_t i = 0; i < draft->count; i++)
        plan->bytes += draft->pairs[i].bytes;
    if (!draft->count)
        return true;
    plan->source = reshard_make_extents(draft, false, &plan->source_count);
    plan->target = reshard_make_extents(draft, true, &plan->target_count);
    return plan->source && plan->target;
}

/* ---- the whole ---- */

static uint32_t later_of(uint32_t one, uint32_t other)
{
    return one > other ? one : other;
}

/* What both have of [one, one + one_count) and [other, other + other_count). */
static void share_range(uint32_t one, uint32_t one_count, uint32_t other, uint32_t other_count,
                        uint32_t *first, uint32_t *count)
{
    const uint32_t end =
        one + one_count < other + other_count ? one + one_count : other + other_count;
    *first = later_of(one, other);
    *count = end > *first ? end - *first : 0;
}

static enum sw_xfer_status check_all(struct draft *draft, const struct sw_plan_model *model,
                                     uint64_t first_token, uint64_t tokens,
                                     struct sw_xfer_error *error)
{
    uint64_t end;
    const char *why = xfc_layout_make(model, draft->source, &draft->from);
    if (why)
        return say_why(error, SW_XFER_INVALID, "the source: ", why);
    why = xfc_layout_make(model, draft->target, &draft->to);
    if (why)
        return say_why(error, SW_XFER_INVALID, "the target: ", why);
    if (!tokens || __builtin_add_overflow(first_token, tokens, &end))
        return say_why(error, SW_XFER_INVALID, "", "there has to be at least one token");
    enum sw_xfer_status status = check_length(draft->source, "the source: ", end, error);
    if (!status)
        status = check_length(draft->target, "the target: ", end, error);
    return status ? status : check_twins(draft->target, error);
}

enum sw_xfer_status sw_plan_reshard(const struct sw_plan_model *model,
                                    const struct sw_plan_side *source,
                                    const struct sw_plan_side *target, uint64_t first_token,
                                    uint64_t tokens, struct sw_xfer_error *error,
                                    struct sw_plan *plan)
{
    struct draft draft = {.source = source, .target = target};
    struct sw_plan made = {.source = NULL};
    const enum sw_xfer_status status = check_all(&draft, model, first_token, tokens, error);
    if (status)
        return status;
    const struct xfc_layout *from = &draft.from, *to = &draft.to;
    share_range(from->layer_first, from->count[XFC_LAYER], to->layer_first, to->count[XFC_LAYER],
                &draft.layer_first, &draft.layers);
    share_range(from->head_first, from->count[XFC_HEAD], to->head_first, to->count[XFC_HEAD],
                &draft.head_first, &draft.heads);
    /* One of the sources that have the same heads serves this target. */
    const bool is_served = target->rank % from->replicas == from->replica;
    bool is_fine = true;
    for (uint64_t done = 0; is_fine && is_served && draft.heads && draft.layers && done < tokens;) {
        struct run run;
        find_run(&draft, first_token + done, tokens - done, &run);
        is_fine = reshard_add_run(&draft, &run);
        done += run.tokens;
    }
    join_pairs(&draft);
    is_fine = is_fine && fill_plan(&draft, &made);
    free(draft.pairs);
    if (!is_fine) {
        sw_plan_free(&made);
        return say_why(error, SW_XFER_NO_MEMORY, "", "out of memory, or more than 2^26 blocks");
    }
    *plan = made;
    return SW_XFER_OK;
}

void sw_plan_free(struct sw_plan *plan)
{
    free(plan->source);
    free(plan->target);
    *plan = (struct sw_plan){.source = NULL};
}
