/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/core/plan.h"

#include <assert.h>

#include "collectives/core/maker.h"

/* What is pulled and then pushed goes in shorter requests, so that both are under way at a time. */
enum { CHUNK_PASSED_ON = 256 << 10, PAGE = 4096 };

/* A part of a buffer that each rank has at the same place. */
struct plan_slice {
    uint64_t offset, bytes;
};

/* For all others but the root, which is another one. */
static void add_for_the_rest(struct coll_plan_maker *maker, struct coll_step step)
{
    step.peer = (maker->rank + 1) % maker->size;
    step.peers = (maker->root + maker->size - step.peer) % maker->size;
    coll_plan_add(maker, step);
    step.peer = (maker->root + 1) % maker->size;
    step.peers = (maker->rank + maker->size - step.peer) % maker->size;
    coll_plan_add(maker, step);
}

/* For all others, with the block of each in that place. */
static void add_for_blocks(struct coll_plan_maker *maker, struct coll_step step,
                           enum coll_place place, const uint64_t *counts)
{
    struct coll_span *span = step.from.place == place ? &step.from : &step.to;
    if (!counts) {
        step.bytes = maker->whole;
        span->peer = maker->whole;
        coll_plan_for_others(maker, step);
        return;
    }
    uint32_t peer = (maker->rank + 1) % maker->size;
    span->offset = coll_blocks_before(counts, 0, peer) * maker->type;
    for (uint32_t i = 1; i < maker->size; i++) {
        step.bytes = counts[peer] * maker->type;
        coll_plan_for_one(maker, peer, step);
        span->offset += step.bytes;
        if (++peer == maker->size)
            peer = 0, span->offset = 0;
    }
}

/* ---- eager: functions of many steps stay apart, since these lie on the stack ---- */

__attribute__((noinline)) static void mail_payloads(struct coll_plan_maker *maker)
{
    const struct sw_coll_call *call = maker->call;
    const bool is_root = maker->rank == maker->root;
    const struct coll_step none = {.action = COLL_MAIL};
    struct coll_step whole = {.action = COLL_MAIL,
                              .leaves = maker->leaves,
                              .bytes = maker->whole,
                              .from = {.place = COLL_SEND, .leaf = maker->whole}};
    struct coll_step own = {.action = COLL_MAIL, .bytes = maker->own, .from = {.place = COLL_SEND}};
    struct coll_step blocks = {.action = COLL_MAIL,
                               .leaves = maker->leaves,
                               .from = {.place = COLL_SEND, .leaf = maker->all}};
    switch (call->kind) {
    case SW_COLL_ALL_REDUCE:
        coll_plan_for_others(maker, whole);
        return;
    case SW_COLL_BROADCAST:
        coll_plan_for_others(maker, is_root ? whole : none);
        return;
    case SW_COLL_ALL_GATHER:
        coll_plan_for_others(maker, own);
        return;
    case SW_COLL_REDUCE_SCATTER:
    case SW_COLL_ALL_TO_ALL:
        add_for_blocks(maker, blocks, COLL_SEND, call->counts);
        return;
    case SW_COLL_SCATTER:
        if (is_root)
            add_for_blocks(maker, blocks, COLL_SEND, call->counts);
        else
            coll_plan_for_others(maker, none);
        return;
    case SW_COLL_REDUCE:
    case SW_COLL_GATHER:
        if (is_root) {
            coll_plan_for_others(maker, none);
        } else {
            coll_plan_for_one(maker, maker->root, call->kind == SW_COLL_REDUCE ? whole : own);
            add_for_the_rest(maker, none);
        }
        return;
    case SW_COLL_BARRIER:
    case SW_COLL_KINDS:
        coll_plan_for_others(maker, none);
        return;
    }
}

static void copy_own(struct coll_plan_maker *maker, uint64_t bytes, uint64_t from, uint64_t to)
{
    coll_plan_for_one(
        maker, maker->rank,
        (struct coll_step){
            .action = COLL_COPY,
            .bytes = bytes,
            .from = {.place = COLL_SEND, .offset = from, .chunk = maker->table->chunk},
            .to = {.place = COLL_RECV, .offset = to, .chunk = maker->table->chunk}});
}

static void fold_mails(struct coll_plan_maker *maker, uint64_t bytes, uint64_t offset,
                       uint64_t leaf)
{
    coll_plan_add(maker,
                  (struct coll_step){.action = COLL_FOLD,
                                     .peers = maker->size,
                                     .leaves = maker->leaves,
                                     .bytes = bytes,
                                     .from = {.place = COLL_MAILED, .leaf = bytes},
                                     .own = {.place = COLL_SEND, .offset = offset, .leaf = leaf},
                                     .to = {.place = COLL_RECV}});
}

__attribute__((noinline)) static void use_payloads(struct coll_plan_maker *maker)
{
    const struct sw_coll_call *call = maker->call;
    const bool is_root = maker->rank == maker->root;
    struct coll_step copy = {
        .action = COLL_COPY, .from = {.place = COLL_MAILED}, .to = {.place = COLL_RECV}};
    switch (call->kind) {
    case SW_COLL_REDUCE:
        if (!is_root)
            return;
        __attribute__((fallthrough));
    case SW_COLL_ALL_REDUCE:
        fold_mails(maker, maker->whole, 0, maker->whole);
        return;
    case SW_COLL_REDUCE_SCATTER:
        fold_mails(maker, maker->own, maker->before, maker->all);
        return;
    case SW_COLL_GATHER:
        if (!is_root)
            return;
        __attribute__((fallthrough));
    case SW_COLL_ALL_GATHER:
        add_for_blocks(maker, copy, COLL_RECV, call->counts);
        copy_own(maker, maker->own, 0, maker->before);
        return;
    case SW_COLL_ALL_TO_ALL:
        add_for_blocks(maker, copy, COLL_RECV, call->counts);
        copy_own(maker, maker->own, maker->before, maker->before);
        return;
    case SW_COLL_BROADCAST:
    case SW_COLL_SCATTER:
        copy.bytes = call->kind == SW_COLL_BROADCAST ? maker->whole : maker->own;
        if (is_root)
            copy_own(maker, copy.bytes, maker->before, 0);
        else
            coll_plan_for_one(maker, maker->root, copy);
        return;
    case SW_COLL_BARRIER:
    case SW_COLL_KINDS:
        return;
    }
}

static void make_eager(struct coll_plan_maker *maker)
{
    mail_payloads(maker);
    coll_plan_for_others(maker, (struct coll_step){.action = COLL_AWAIT});
    use_payloads(maker);
    maker->table->loop = maker->table->loop_end = maker->table->count;
}

/* ---- owners of slices ---- */

static struct plan_slice slice_of(const struct coll_plan_maker *maker, uint32_t rank)
{
    const uint64_t lines = (maker->whole + COLL_LINE - 1) / COLL_LINE;
    const uint64_t each = lines / maker->size, more = lines % maker->size;
    const uint64_t begin =
        mover_min_u64((each * rank + mover_min_u64(rank, more)) * COLL_LINE, maker->whole);
    const uint64_t end = mover_min_u64(
        (each * (rank + 1) + mover_min_u64(rank + 1, more)) * COLL_LINE, maker->whole);
    return (struct plan_slice){begin, end - begin};
}

/* Scratch has two parts for chunks by turns, each with room for so many. */
static uint64_t chunk_in_scratch(const struct coll_plan_maker *maker, uint64_t places)
{
    if (!places)
        return maker->request_max;
    const uint64_t chunk = mover_min_u64(maker->scratch_bytes / 2 / places, maker->request_max);
    assert(chunk >= COLL_LINE);
    return chunk - chunk % (chunk >= PAGE ? PAGE : COLL_LINE);
}

/* The first chunk before the loop, each other one in it, before the one before is used. */
static void add_pulls(struct coll_plan_maker *maker, struct coll_step pull)
{
    struct coll_table *table = maker->table;
    struct coll_step first = pull;
    first.bytes = mover_min_u64(pull.bytes, table->chunk);
    coll_plan_add(maker, first);
    table->loop = table->count;
    pull.is_ahead = true;
    coll_plan_add(maker, pull);
    coll_plan_add(maker, (struct coll_step){.action = COLL_SETTLE_PULLS, .peers = 1});
}

/* Pulls a slice of all leaves of the others, and folds it with this rank's into `to`. */
__attribute__((noinline)) static void fold_slice(struct coll_plan_maker *maker,
                                                 struct plan_slice slice, uint64_t leaf,
                                                 struct coll_span to)
{
    const uint64_t others = (uint64_t)(maker->size - 1) * maker->leaves;
    const uint64_t places = others + (to.place == COLL_SCRATCH);
    const uint64_t chunk = chunk_in_scratch(maker, places);
    maker->table->chunk = chunk;
    const struct coll_span scratch = {.place = COLL_SCRATCH,
                                      .chunk = places * chunk,
                                      .peer = maker->leaves * chunk,
                                      .leaf = chunk};
    const struct coll_span send = {
        .place = COLL_SEND, .offset = slice.offset, .chunk = chunk, .leaf = leaf};
    add_pulls(maker, (struct coll_step){.action = COLL_PULL,
                                        .peer = (maker->rank + 1) % maker->size,
                                        .peers = maker->size - 1,
                                        .leaves = maker->leaves,
                                        .bytes = slice.bytes,
                                        .from = send,
                                        .to = scratch});
    to.chunk = chunk;
    if (to.place == COLL_SCRATCH) {
        to.offset = others * chunk;
        to.chunk = places * chunk;
    }
    coll_plan_add(maker, (struct coll_step){.action = COLL_FOLD,
                                            .peers = maker->size,
                                            .leaves = maker->leaves,
                                            .bytes = slice.bytes,
                                            .from = scratch,
                                            .own = send,
                                            .to = to});
}

/* To the same place of the receive buffers. */
static struct coll_step push_slice(const struct coll_plan_maker *maker, struct plan_slice slice,
                                   struct coll_span from)
{
    return (struct coll_step){
        .action = COLL_PUSH,
        .bytes = slice.bytes,
        .from = from,
        .to = {.place = COLL_RECV, .offset = slice.offset, .chunk = maker->table->chunk}};
}

static void reduce_by_owners(struct coll_plan_maker *maker)
{
    const struct plan_slice slice = slice_of(maker, maker->rank);
    const struct coll_span in_recv = {.place = COLL_RECV, .offset = slice.offset};
    if (maker->call->kind == SW_COLL_REDUCE_SCATTER) {
        fold_slice(maker, (struct plan_slice){maker->before, maker->own}, maker->all,
                   (struct coll_span){.place = COLL_RECV});
    } else if (maker->call->kind == SW_COLL_ALL_REDUCE || maker->rank == maker->root) {
        fold_slice(maker, slice, maker->whole, in_recv);
        if (maker->call->kind == SW_COLL_ALL_REDUCE)
            coll_plan_for_others(
                maker, push_slice(maker, slice, maker->table->steps[maker->table->count - 1].to));
    } else {
        fold_slice(maker, slice, maker->whole, (struct coll_span){.place = COLL_SCRATCH});
        coll_plan_for_one(
            maker, maker->root,
            push_slice(maker, slice, maker->table->steps[maker->table->count - 1].to));
    }
}

__attribute__((noinline)) static void broadcast_by_owners(struct coll_plan_maker *maker)
{
    struct coll_table *table = maker->table;
    const struct plan_slice slice = slice_of(maker, maker->rank);
    table->chunk = mover_min_u64(maker->request_max, CHUNK_PASSED_ON);
    struct coll_span send = {.place = COLL_SEND, .offset = slice.offset, .chunk = table->chunk};
    struct coll_span recv = send;
    recv.place = COLL_RECV;
    if (maker->rank == maker->root) {
        coll_plan_for_others(maker, push_slice(maker, slice, send));
        copy_own(maker, maker->whole, 0, 0);
    } else {
        add_pulls(maker, (struct coll_step){.action = COLL_PULL,
                                            .peer = maker->root,
                                            .peers = 1,
                                            .bytes = slice.bytes,
                                            .from = send,
                                            .to = recv});
        add_for_the_rest(maker, push_slice(maker, slice, recv));
    }
}

__attribute__((noinline)) static void move_blocks(struct coll_plan_maker *maker)
{
    const struct sw_coll_call *call = maker->call;
    const bool is_root = maker->rank == maker->root;
    const uint64_t chunk = maker->table->chunk = maker->request_max;
    struct coll_step push = push_slice(maker, (struct plan_slice){maker->before, maker->own},
                                       (struct coll_span){.place = COLL_SEND, .chunk = chunk});
    struct coll_step pull = {.action = COLL_PULL,
                             .bytes = maker->own,
                             .from = {.place = COLL_SEND, .chunk = chunk},
                             .to = {.place = COLL_RECV, .chunk = chunk}};
    if (call->kind == SW_COLL_ALL_GATHER) {
        coll_plan_for_others(maker, push);
        copy_own(maker, maker->own, 0, maker->before);
    } else if (call->kind == SW_COLL_ALL_TO_ALL) {
        add_for_blocks(maker, pull, COLL_RECV, call->recv_counts);
        copy_own(maker, maker->own, maker->before,
                 coll_blocks_before(call->recv_counts, call->count, maker->rank) * maker->type);
    } else if (call->kind == SW_COLL_GATHER) {
        if (is_root)
            copy_own(maker, maker->own, 0, maker->before);
        else
            coll_plan_for_one(maker, maker->root, push);
    } else if (is_root) {
        copy_own(maker, maker->own, maker->before, 0);
    } else {
        pull.from.offset = maker->before;
        coll_plan_for_one(maker, maker->root, pull);
    }
}

/* What is pulled straight to where it belongs was not waited for in the loop. */
static bool pulls_to_the_end(enum sw_coll_kind kind)
{
    return kind == SW_COLL_ALL_TO_ALL || kind == SW_COLL_SCATTER;
}

/* OPEN names buffers: ALL_TO_ALL's those of the receiver, so that it need not know what the sender
 * has for others. */
static void name_buffers(struct coll_plan_maker *maker)
{
    const struct coll_step open = {.action = COLL_MAIL, .from = {.place = COLL_SEND}};
    if (maker->call->kind == SW_COLL_ALL_TO_ALL)
        add_for_blocks(maker, open, COLL_SEND, maker->call->counts);
    else
        coll_plan_for_others(maker, open);
}

static void make_owners(struct coll_plan_maker *maker)
{
    struct coll_table *table = maker->table;
    const enum sw_coll_kind kind = maker->call->kind;
    name_buffers(maker);
    coll_plan_for_others(maker, (struct coll_step){.action = COLL_AWAIT});
    table->loop = table->count;
    if (kind == SW_COLL_ALL_REDUCE || kind == SW_COLL_REDUCE || kind == SW_COLL_REDUCE_SCATTER)
        reduce_by_owners(maker);
    else if (kind == SW_COLL_BROADCAST)
        broadcast_by_owners(maker);
    else
        move_blocks(maker);
    table->loop_end = table->count;
    for (uint32_t i = table->loop; i < table->loop_end; i++)
        table->chunks =
            mover_max_u64(table->chunks, (table->steps[i].bytes + table->chunk - 1) / table->chunk);
    const struct coll_step settle = {.action = COLL_SETTLE, .peers = 1};
    if (pulls_to_the_end(kind))
        coll_plan_add(maker, settle);
    /* DONE follows the pushes to its receiver, and is seen after them. */
    coll_plan_for_others(maker, (struct coll_step){.action = COLL_MAIL, .slot = COLL_DONE});
    if (!pulls_to_the_end(kind))
        coll_plan_add(maker, settle);
    coll_plan_for_others(maker, (struct coll_step){.action = COLL_AWAIT, .slot = COLL_DONE});
}

void coll_plan_make(struct coll_table *table, const struct sw_coll_call *call,
                    const struct coll_site *site)
{
    const struct sw_coll_call plain = coll_call_plain(call, site->rank);
    struct coll_plan_maker maker = {
        .table = table,
        .call = &plain,
        .site = site,
        .rank = site->rank,
        .size = site->size,
        .root = plain.root,
        .leaves = plain.leaves,
        .scratch_bytes = site->scratch_bytes,
        .request_max = site->request_max ? site->request_max : COLL_CHUNK_MAX,
        .type = sw_coll_type_bytes(plain.type),
    };
    const uint64_t *counts = plain.counts;
    maker.whole = plain.count * maker.type;
    maker.own = counts ? counts[site->rank] * maker.type : maker.whole;
    if (coll_kind_has_blocks(plain.kind)) {
        maker.before = coll_blocks_before(counts, plain.count, site->rank) * maker.type;
        maker.all = coll_blocks_before(counts, plain.count, site->size) * maker.type;
    }
    table->plan = coll_call_plan(&plain, site);
    table->has_places = site->ranks && coll_plan_has_rounds(table->plan);
    if (table->has_places) {
        maker.rank = coll_place_of(site, maker.rank);
        maker.root = coll_place_of(site, maker.root);
    }
    table->count = 0;
    table->chunk = table->chunks = 0;
    if (table->plan == COLL_PLAN_EAGER)
        make_eager(&maker);
    else if (table->plan == COLL_PLAN_HALVING)
        coll_plan_halving(&maker);
    else if (table->plan == COLL_PLAN_RING)
        coll_plan_ring(&maker);
    else
        make_owners(&maker);
}
