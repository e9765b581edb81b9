/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring: each rank gives to the next one and takes from the one before, and moves data with no
 * other. The partial of a slice begins at the rank behind its owner, and goes once around: each
 * rank folds its own contribution to it. So each slice has another order, and none is the tree.
 *
 * STEP goes to the next rank with what is written there. Back goes one, too, once that was folded:
 * so a rank is never more than one STEP ahead.
 */
#include <assert.h>

#include "collectives/core/fold.h"
#include "collectives/core/maker.h"

struct ring {
    struct coll_plan_maker *maker;
    uint64_t bytes; /* of what is cut into chunks */
    uint64_t slice; /* bytes of a chunk that each rank owns, as leaves count them */
    uint64_t ratio; /* of bytes of partials to those of leaves */
    uint64_t place; /* of scratch: a slice of partials */
    uint32_t next, before;
    bool has_blocks; /* each block is cut into chunks, else the whole is, and these into slices */
    bool is_sent_as_is; /* a leaf is a partial */
};

/* ---- where things are ---- */

static void choose_slice(struct ring *ring)
{
    const struct coll_plan_maker *maker = ring->maker;
    const uint64_t slices = ring->has_blocks ? 1 : maker->size;
    const uint64_t places = maker->size + 1, line = ring->ratio * COLL_LINE;
    const uint64_t fits = maker->scratch_bytes / 2 / (places * line);
    assert(fits);
    const uint64_t most =
        slices * COLL_LINE *
        mover_max_u64(1, mover_min_u64(fits, maker->request_max / (slices * COLL_LINE)));
    const uint64_t chunks = (ring->bytes + most - 1) / most;
    const uint64_t each = chunks ? (ring->bytes + chunks - 1) / chunks : 1;
    ring->slice = (each + slices * COLL_LINE - 1) / (slices * COLL_LINE) * COLL_LINE;
    ring->place = ring->slice * ring->ratio;
    maker->table->chunk = ring->slice * slices;
    maker->table->chunks = chunks;
}

/* A slice of partials in scratch: one for each round, and two more. */
static struct coll_span in_place(const struct ring *ring, uint32_t number)
{
    return (struct coll_span){.place = COLL_SCRATCH,
                              .offset = number * ring->place,
                              .chunk = (ring->maker->size + 1) * ring->place};
}

static uint32_t first_place(const struct ring *ring)
{
    return ring->maker->size - 1;
}

static uint32_t own_place(const struct ring *ring)
{
    return ring->maker->size;
}

/* That of a slice, in a buffer of the caller. */
static struct coll_span slice_in(const struct ring *ring, enum coll_place place, uint32_t slice)
{
    const struct coll_plan_maker *maker = ring->maker;
    const bool is_send = place == COLL_SEND;
    struct coll_span span = {.place = place, .chunk = maker->table->chunk};
    if (!ring->has_blocks)
        span.offset = slice * ring->slice;
    else if (is_send)
        span.offset = coll_rank_at(maker->site, slice) * maker->whole; /* the owner's block */
    if (is_send)
        span.leaf = ring->has_blocks ? maker->all : maker->whole;
    return span;
}

static struct coll_step ring_step(const struct ring *ring, enum coll_action action, uint32_t slice)
{
    struct coll_step step = {.action = action, .bytes = ring->bytes};
    if (!ring->has_blocks) {
        step.skip = slice * ring->slice;
        step.part = ring->slice;
    }
    return step;
}

/* The slice that lies so many ranks behind this rank's. */
static uint32_t slice_behind(const struct ring *ring, uint32_t ranks)
{
    const uint32_t size = ring->maker->size;
    return (ring->maker->rank + 2 * size - ranks) % size;
}

/* ---- rounds ---- */

/* This rank's contribution to that slice, as a partial: where it lies, or in that place. */
static struct coll_span own_partial(const struct ring *ring, uint32_t slice, uint32_t place)
{
    const struct coll_span leaves = slice_in(ring, COLL_SEND, slice);
    if (ring->is_sent_as_is)
        return leaves;
    struct coll_step fold = ring_step(ring, COLL_FOLD_LEAVES, slice);
    fold.leaves = ring->maker->leaves;
    fold.own = leaves;
    fold.to = in_place(ring, place);
    coll_plan_for_one(ring->maker, ring->maker->rank, fold);
    return fold.to;
}

/* `must_wait`: the next rank has not said yet that it has used what it was given before. */
static void give_and_take(const struct ring *ring, struct coll_step push, bool must_wait)
{
    coll_plan_for_one(ring->maker, ring->next, push);
    if (must_wait)
        coll_plan_await_step(ring->maker, ring->next);
    coll_plan_mail_step(ring->maker, ring->next);
    coll_plan_await_step(ring->maker, ring->before);
}

static void reduce_around(const struct ring *ring)
{
    struct coll_plan_maker *maker = ring->maker;
    struct coll_span given = own_partial(ring, slice_behind(ring, 1), first_place(ring));
    for (uint32_t round = 0; round + 1 < maker->size; round++) {
        const uint32_t slice = slice_behind(ring, round + 2);
        struct coll_step push = ring_step(ring, COLL_PUSH, slice_behind(ring, round + 1));
        push.is_partial = true;
        push.from = given;
        push.to = given = in_place(ring, round);
        give_and_take(ring, push, round > 0);
        struct coll_step fold = ring_step(ring, COLL_FOLD_PARTIALS, slice);
        fold.own = own_partial(ring, slice, own_place(ring));
        fold.from = fold.to = given;
        coll_plan_for_one(maker, ring->before, fold);
        coll_plan_mail_step(maker, ring->before);
    }
    struct coll_step finish = ring_step(ring, COLL_FINISH, maker->rank);
    finish.from = given;
    finish.to = slice_in(ring, COLL_RECV, maker->rank);
    coll_plan_for_one(maker, maker->rank, finish);
}

static void gather_around(const struct ring *ring)
{
    struct coll_plan_maker *maker = ring->maker;
    for (uint32_t round = 0; round + 1 < maker->size; round++) {
        const uint32_t slice = slice_behind(ring, round);
        struct coll_step push = ring_step(ring, COLL_PUSH, slice);
        push.from = push.to = slice_in(ring, COLL_RECV, slice);
        give_and_take(ring, push, true);
        coll_plan_mail_step(maker, ring->before);
    }
}

void coll_plan_ring(struct coll_plan_maker *maker)
{
    struct coll_table *table = maker->table;
    const uint64_t ratio = coll_partial_bytes(maker->call->type) / maker->type;
    struct ring ring = {
        .maker = maker,
        .bytes = maker->whole,
        .ratio = ratio,
        .next = (maker->rank + 1) % maker->size,
        .before = (maker->rank + maker->size - 1) % maker->size,
        .has_blocks = maker->call->kind == SW_COLL_REDUCE_SCATTER,
        .is_sent_as_is = maker->leaves == 1 && ratio == 1,
    };
    choose_slice(&ring);
    coll_plan_for_others(maker, (struct coll_step){.action = COLL_MAIL});
    coll_plan_for_others(maker, (struct coll_step){.action = COLL_AWAIT});
    table->loop = table->count;
    reduce_around(&ring);
    if (maker->call->kind == SW_COLL_ALL_REDUCE)
        gather_around(&ring);
    coll_plan_await_step(maker, ring.next);
    table->loop_end = table->count;
    coll_plan_add(maker, (struct coll_step){.action = COLL_SETTLE, .peers = 1});
}
