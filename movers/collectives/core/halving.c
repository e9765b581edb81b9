/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Vector halving with distance doubling. In round j a rank and the one whose number differs in bit
 * j - 1 split what they have of the vector: each gives the other one half, and folds the half that
 * it keeps. So neighbours come first, and the rank whose bit is 0 is on the left: exactly the tree.
 *
 * Numbers of ranks that are no powers of two are cut into blocks that are, the largest first: 7 are
 * 4, 2 and 1. That is where the tree is split. Each block does its rounds alone. Then the last
 * block gives its partials to the one before, and so on. The ranks of the first block have results
 * in the end, each of them one slice.
 *
 * All goes through scratch, chunk by chunk, in two sides by turns. A rank writes a chunk to where
 * it wrote the one before the last only after the other one has answered in the last: either by
 * partials of its own, or by the result, or by a STEP that says just that.
 */
#include <assert.h>

#include "collectives/core/fold.h"
#include "collectives/core/maker.h"

/* Ranks `first` to first + 2^bits. */
struct halving_block {
    uint32_t first, bits;
};

/* Bytes of each chunk, as leaves count them. */
struct halving_range {
    uint64_t begin, bytes;
};

struct halving {
    struct coll_plan_maker *maker;
    uint64_t vector, chunk;
    uint64_t leaf;  /* from one of a rank's contributions to the next */
    uint64_t ratio; /* of bytes of partials to those of leaves */
    uint32_t bits;  /* of the first block */
    bool is_power_of_two, has_out, must_answer;
    uint64_t small_at, partial_at, out_at, side; /* of scratch */
    struct halving_block own, before, next;      /* blocks; `bits` of UINT32_MAX: there is none */
    uint32_t index;                              /* of this rank in its block */
};

static uint32_t floor_log2(uint32_t number)
{
    return 31 - (uint32_t)__builtin_clz(number);
}

/* ---- where things are ---- */

/* What the rank of that number in its block has after so many rounds. */
static struct halving_range range_after(const struct halving *halving, uint32_t index,
                                        uint32_t rounds)
{
    struct halving_range range = {0, halving->chunk};
    for (uint32_t round = 0; round < rounds; round++) {
        range.bytes /= 2;
        if (index >> round & 1)
            range.begin += range.bytes;
    }
    return range;
}

/* What others write in that round, from 1. In the first one it is leaves. */
static uint64_t landing_at(const struct halving *halving, uint32_t round)
{
    const uint64_t half = halving->chunk / 2;
    return round == 1 ? 0
                      : halving->maker->leaves * half +
                            halving->ratio * (half - (halving->chunk >> (round - 1)));
}

/* For a chunk of so many bytes. */
static void lay_out_scratch(struct halving *halving, uint64_t chunk)
{
    const uint64_t half_of_partials = halving->ratio * chunk / 2;
    halving->chunk = chunk;
    halving->small_at = landing_at(halving, halving->bits + 1);
    halving->partial_at = halving->small_at + (halving->is_power_of_two ? 0 : half_of_partials);
    halving->out_at = halving->partial_at + (halving->maker->size == 2 ? 0 : half_of_partials);
    halving->side = halving->out_at + (halving->has_out ? chunk >> halving->bits : 0);
}

/* Chunks are alike, as near as may be, and slices are whole lines. */
static void choose_chunk(struct halving *halving)
{
    const struct coll_plan_maker *maker = halving->maker;
    const uint64_t least = (uint64_t)COLL_LINE << halving->bits;
    lay_out_scratch(halving, least);
    const uint64_t fits = maker->scratch_bytes / 2 / halving->side;
    assert(fits);
    const uint64_t most = least * mover_max_u64(1, mover_min_u64(fits, maker->request_max / least));
    const uint64_t chunks = (halving->vector + most - 1) / most;
    const uint64_t each = chunks ? (halving->vector + chunks - 1) / chunks : 1;
    lay_out_scratch(halving, (each + least - 1) / least * least);
    maker->table->chunk = halving->chunk;
    maker->table->chunks = chunks;
}

static struct coll_span in_scratch(const struct halving *halving, uint64_t offset)
{
    return (struct coll_span){.place = COLL_SCRATCH, .offset = offset, .chunk = halving->side};
}

/* In a buffer of the caller. */
static struct coll_span in_buffer(const struct halving *halving, enum coll_place place,
                                  struct halving_range range)
{
    return (struct coll_span){.place = place,
                              .offset = range.begin,
                              .chunk = halving->chunk,
                              .leaf = place == COLL_SEND ? halving->leaf : 0};
}

/* This rank's partials of that range. A block of one rank has all of them, and nothing lands. */
static struct coll_span in_partials(const struct halving *halving, struct halving_range range)
{
    if (!halving->own.bits)
        return in_scratch(halving, halving->ratio * range.begin);
    const uint64_t begin = range_after(halving, halving->index, 1).begin;
    return in_scratch(halving, halving->partial_at + halving->ratio * (range.begin - begin));
}

static struct coll_step step_for(const struct halving *halving, enum coll_action action,
                                 struct halving_range range)
{
    return (struct coll_step){
        .action = action, .bytes = halving->vector, .skip = range.begin, .part = range.bytes};
}

/* ---- to partials ---- */

/* Results of two ranks are there after one round, which needs no partials. */
static bool ends_at_once(const struct halving *halving)
{
    return halving->maker->size == 2;
}

static void fold_leaves(const struct halving *halving, struct halving_range range, uint32_t other)
{
    struct coll_step fold = step_for(halving, COLL_FOLD_LEAVES, range);
    fold.leaves = halving->maker->leaves;
    fold.own = in_buffer(halving, COLL_SEND, range);
    fold.to = in_partials(halving, range);
    if (other != halving->maker->rank) {
        fold.from = in_scratch(halving, landing_at(halving, 1));
        fold.from.leaf = halving->chunk / 2;
    }
    coll_plan_for_one(halving->maker, other, fold);
}

static void fold_partials(const struct halving *halving, struct halving_range range, uint32_t other,
                          uint64_t landed_at)
{
    struct coll_step fold = step_for(halving, COLL_FOLD_PARTIALS, range);
    fold.own = fold.to = in_partials(halving, range);
    fold.from = in_scratch(halving, landed_at);
    coll_plan_for_one(halving->maker, other, fold);
}

static void give_partials(const struct halving *halving, struct halving_range range, uint32_t other,
                          uint64_t landed_at)
{
    struct coll_step push = step_for(halving, COLL_PUSH, range);
    push.is_partial = true;
    push.from = in_partials(halving, range);
    push.to = in_scratch(halving, landed_at);
    coll_plan_for_one(halving->maker, other, push);
    coll_plan_mail_step(halving->maker, other);
}

static void give_leaves(const struct halving *halving, struct halving_range range, uint32_t other)
{
    struct coll_step push = step_for(halving, COLL_PUSH, range);
    push.leaves = halving->maker->leaves;
    push.from = in_buffer(halving, COLL_SEND, range);
    push.to = in_scratch(halving, landing_at(halving, 1));
    push.to.leaf = halving->chunk / 2;
    coll_plan_for_one(halving->maker, other, push);
    coll_plan_mail_step(halving->maker, other);
}

static void halve_in_block(const struct halving *halving)
{
    if (!halving->own.bits)
        fold_leaves(halving, range_after(halving, 0, 0), halving->maker->rank);
    for (uint32_t round = 1; round <= halving->own.bits; round++) {
        const uint32_t index = halving->index ^ 1u << (round - 1);
        const uint32_t other = halving->own.first + index;
        const struct halving_range keep = range_after(halving, halving->index, round);
        const struct halving_range give = range_after(halving, index, round);
        if (round == 1)
            give_leaves(halving, give, other);
        else
            give_partials(halving, give, other, landing_at(halving, round));
        coll_plan_await_step(halving->maker, other);
        if (round > 1)
            fold_partials(halving, keep, other, landing_at(halving, round));
        else if (!ends_at_once(halving))
            fold_leaves(halving, keep, other);
    }
}

/* From the block of those that come after this one's. */
static void take_from_next(const struct halving *halving)
{
    const uint32_t other =
        halving->next.first + (halving->index & ((1u << halving->next.bits) - 1));
    coll_plan_await_step(halving->maker, other);
    fold_partials(halving, range_after(halving, halving->index, halving->own.bits), other,
                  halving->small_at);
    if (halving->must_answer)
        coll_plan_mail_step(halving->maker, other);
}

static void give_to_block_before(const struct halving *halving)
{
    const uint32_t each = 1u << halving->own.bits, count = 1u << halving->before.bits;
    for (uint32_t index = halving->index; index < count; index += each)
        give_partials(halving, range_after(halving, index, halving->before.bits),
                      halving->before.first + index, halving->small_at);
    for (uint32_t index = halving->index; halving->must_answer && index < count; index += each)
        coll_plan_await_step(halving->maker, halving->before.first + index);
}

/* ---- to results ---- */

static void finish_slice(const struct halving *halving, struct halving_range slice, bool is_out)
{
    const struct coll_plan_maker *maker = halving->maker;
    const struct coll_span to =
        is_out ? in_scratch(halving, halving->out_at) : in_buffer(halving, COLL_RECV, slice);
    struct coll_step finish =
        step_for(halving, ends_at_once(halving) ? COLL_FOLD : COLL_FINISH, slice);
    if (is_out) /* what it had is not read any more */
        coll_plan_add(halving->maker, (struct coll_step){.action = COLL_SETTLE, .peers = 1});
    finish.to = to;
    if (!ends_at_once(halving)) {
        finish.from = in_partials(halving, slice);
        coll_plan_for_one(halving->maker, maker->rank, finish);
        return;
    }
    finish.peers = maker->size;
    finish.leaves = maker->leaves;
    finish.own = in_buffer(halving, COLL_SEND, slice);
    finish.from = in_scratch(halving, landing_at(halving, 1));
    finish.from.leaf = halving->chunk / 2;
    coll_plan_add(halving->maker, finish);
}

static void give_results(const struct halving *halving, struct halving_range range, uint32_t other)
{
    struct coll_step push = step_for(halving, COLL_PUSH, range);
    push.from = push.to = in_buffer(halving, COLL_RECV, range);
    coll_plan_for_one(halving->maker, other, push);
    coll_plan_mail_step(halving->maker, other);
}

/* The way back: those that halved last share what they have first. */
static void gather_slices(const struct halving *halving)
{
    const struct coll_plan_maker *maker = halving->maker;
    for (uint32_t round = halving->bits; round > 0; round--) {
        const uint32_t other = maker->rank ^ 1u << (round - 1);
        give_results(halving, range_after(halving, maker->rank, round), other);
        coll_plan_await_step(halving->maker, other);
    }
    const uint32_t beyond = maker->rank + (1u << halving->bits);
    if (beyond < maker->size)
        give_results(halving, range_after(halving, 0, 0), beyond);
}

static void deliver_slices(const struct halving *halving)
{
    const struct coll_plan_maker *maker = halving->maker;
    const enum sw_coll_kind kind = maker->call->kind;
    const struct halving_range slice = range_after(halving, maker->rank, halving->bits);
    const bool is_out =
        kind == SW_COLL_REDUCE_SCATTER || (kind == SW_COLL_REDUCE && maker->rank != maker->root);
    finish_slice(halving, slice, is_out);
    struct coll_step step =
        step_for(halving, kind == SW_COLL_REDUCE ? COLL_PUSH : COLL_DELIVER, slice);
    step.from = in_scratch(halving, halving->out_at);
    if (kind == SW_COLL_ALL_REDUCE) {
        gather_slices(halving);
    } else if (kind == SW_COLL_REDUCE_SCATTER) {
        coll_plan_for_one(halving->maker, maker->rank, step);
    } else if (is_out) {
        step.to = in_buffer(halving, COLL_RECV, slice);
        coll_plan_for_one(halving->maker, maker->root, step);
    }
}

/* ---- the table ---- */

static void find_blocks(struct halving *halving)
{
    const struct coll_plan_maker *maker = halving->maker;
    const struct halving_block none = {0, UINT32_MAX};
    halving->own = none;
    for (uint32_t first = 0; first <= maker->rank;) {
        halving->before = halving->own;
        halving->own = (struct halving_block){first, floor_log2(maker->size - first)};
        first += 1u << halving->own.bits;
        halving->next = first < maker->size
                            ? (struct halving_block){first, floor_log2(maker->size - first)}
                            : none;
    }
    halving->index = maker->rank - halving->own.first;
}

/* DONE of the ranks that write results, beside this one's own. */
static void await_writers(const struct halving *halving)
{
    struct coll_plan_maker *maker = halving->maker;
    const uint32_t writers = 1u << halving->bits;
    struct coll_step await = {.action = COLL_AWAIT, .slot = COLL_DONE};
    await.peers = maker->rank < writers ? maker->rank : writers;
    coll_plan_add(maker, await);
    await.peer = maker->rank + 1;
    await.peers = await.peer < writers ? writers - await.peer : 0;
    coll_plan_add(maker, await);
}

static void end_halving(const struct halving *halving)
{
    struct coll_plan_maker *maker = halving->maker;
    const enum sw_coll_kind kind = maker->call->kind;
    const bool is_writer = maker->rank < 1u << halving->bits, is_root = maker->rank == maker->root;
    const struct coll_step done = {.action = COLL_MAIL, .slot = COLL_DONE};
    if (kind == SW_COLL_REDUCE_SCATTER && is_writer)
        coll_plan_for_others(maker, done);
    if (kind == SW_COLL_REDUCE && is_writer && !is_root)
        coll_plan_for_one(maker, maker->root, done);
    coll_plan_add(maker, (struct coll_step){.action = COLL_SETTLE, .peers = 1});
    if (kind == SW_COLL_REDUCE_SCATTER || (kind == SW_COLL_REDUCE && is_root))
        await_writers(halving);
}

void coll_plan_halving(struct coll_plan_maker *maker)
{
    struct coll_table *table = maker->table;
    const enum sw_coll_kind kind = maker->call->kind;
    const bool has_blocks = kind == SW_COLL_REDUCE_SCATTER;
    struct halving halving = {
        .maker = maker,
        .vector = has_blocks ? maker->all : maker->whole,
        .leaf = has_blocks ? maker->all : maker->whole,
        .ratio = coll_partial_bytes(maker->call->type) / maker->type,
        .bits = floor_log2(maker->size),
        .is_power_of_two = (maker->size & (maker->size - 1)) == 0,
        .has_out = kind != SW_COLL_ALL_REDUCE,
        .must_answer = kind != SW_COLL_ALL_REDUCE,
    };
    choose_chunk(&halving);
    find_blocks(&halving);
    coll_plan_for_others(maker, (struct coll_step){.action = COLL_MAIL});
    coll_plan_for_others(maker, (struct coll_step){.action = COLL_AWAIT});
    table->loop = table->count;
    halve_in_block(&halving);
    if (halving.next.bits != UINT32_MAX)
        take_from_next(&halving);
    if (halving.before.bits != UINT32_MAX)
        give_to_block_before(&halving);
    else
        deliver_slices(&halving);
    if (halving.before.bits != UINT32_MAX && kind == SW_COLL_ALL_REDUCE)
        coll_plan_await_step(maker, maker->rank - (1u << halving.bits));
    table->loop_end = table->count;
    end_halving(&halving);
}
