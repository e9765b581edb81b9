/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tables of all ranks side by side, without memory: so buffers may be as large as they like. What
 * is written to each rank's buffer covers it once, from its first byte to its last, and nothing
 * leaves a buffer, scratch or the length of a request.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "calls.h"
#include "collectives/core/plan.h"

enum { PIECES_MAX = 3 * CALLS_RANKS_MAX, STEPS_MAX = 13 * CALLS_RANKS_MAX + 128 };
static const uint64_t REQUEST_MAX = 1 << 20;

/* A part of a rank's `recv` that somebody writes. */
struct plan_piece {
    uint64_t begin, end;
};

struct plan_target {
    struct plan_piece pieces[PIECES_MAX];
    uint32_t count;
    uint64_t send_bytes, recv_bytes;
};

struct plan_model {
    struct calls_draw draw;
    uint64_t number;
    struct sw_coll_call call;
    struct coll_site site;
    struct coll_step steps[STEPS_MAX];
    struct coll_table table;
    struct plan_target targets[CALLS_RANKS_MAX];
    uint64_t pieces, multiple_chunks;
};

static void demand(const struct plan_model *model, bool holds, const char *what)
{
    if (!holds)
        fail_msg("%s: %u ranks, seed %lu, rank %u, %s", what, model->draw.size,
                 (unsigned long)model->draw.seed, model->site.rank,
                 sw_coll_kind_name(model->call.kind));
}

static void add_piece(struct plan_model *model, uint32_t rank, uint64_t begin, uint64_t end)
{
    struct plan_target *target = &model->targets[rank];
    if (begin == end)
        return;
    demand(model, target->count < PIECES_MAX, "too many pieces");
    demand(model, begin < end && end <= target->recv_bytes, "a piece leaves the buffer");
    target->pieces[target->count++] = (struct plan_piece){begin, end};
    model->pieces++;
}

static bool is_in_loop(const struct coll_table *table, uint32_t at)
{
    return at >= table->loop && at < table->loop_end;
}

/* What the step writes to `recv`, here or at its peers, in all chunks. */
static void add_written(struct plan_model *model, const struct coll_step *step)
{
    if (step->to.place != COLL_RECV)
        return;
    const bool is_own = step->action != COLL_PUSH;
    const uint64_t first = step->is_ahead ? model->table.chunk : 0;
    for (uint32_t i = 0; step->action != COLL_FOLD && i < step->peers; i++) {
        const uint32_t peer = (step->peer + i) % model->draw.size;
        const uint64_t begin = step->to.offset + peer * step->to.peer;
        if (first < step->bytes)
            add_piece(model, is_own ? model->site.rank : peer, begin + first, begin + step->bytes);
    }
    if (step->action == COLL_FOLD)
        add_piece(model, model->site.rank, step->to.offset, step->to.offset + step->bytes);
}

/* What it reads is in the buffer of the peer, which names the block itself in ALL_TO_ALL. */
static void check_read(struct plan_model *model, const struct coll_step *step)
{
    for (uint32_t i = 0; step->action == COLL_PULL && i < step->peers; i++) {
        const uint32_t peer = (step->peer + i) % model->draw.size;
        const uint64_t end = step->from.offset + (step->leaves - 1) * step->from.leaf + step->bytes;
        demand(model, end <= model->targets[peer].send_bytes, "it reads beyond a buffer");
        demand(model, peer != model->site.rank, "it reads from itself");
    }
}

static void check_scratch(struct plan_model *model, const struct coll_step *step,
                          const struct coll_span *span)
{
    if (span->place != COLL_SCRATCH || model->draw.size == 1)
        return;
    const uint32_t others = step->action == COLL_PUSH ? 0 : model->draw.size - 2;
    const uint64_t last =
        span->offset + span->chunk + others * span->peer + (step->leaves - 1) * span->leaf;
    demand(model, span->chunk >= last - span->chunk + model->table.chunk, "chunks overlap");
    demand(model, last + model->table.chunk <= model->site.scratch_bytes, "it leaves scratch");
}

static void check_table(struct plan_model *model)
{
    const struct coll_table *table = &model->table;
    uint64_t longest = 0;
    demand(model, table->chunk && table->chunk <= REQUEST_MAX && table->chunk % 64 == 0,
           "its chunks have a bad length");
    for (uint32_t i = 0; i < table->count; i++) {
        const struct coll_step *step = &table->steps[i];
        const bool is_request = step->action == COLL_PULL || step->action == COLL_PUSH;
        if (is_in_loop(table, i) && step->bytes > longest)
            longest = step->bytes;
        if (is_request && !is_in_loop(table, i))
            demand(model, step->bytes <= table->chunk, "a request is too long");
        if (is_request || step->action == COLL_FOLD || step->action == COLL_COPY)
            add_written(model, step);
        check_read(model, step);
        check_scratch(model, step, &step->from);
        check_scratch(model, step, &step->to);
    }
    demand(model, table->chunks == (longest + table->chunk - 1) / table->chunk,
           "its chunks have a bad number");
    model->multiple_chunks += table->chunks > 1;
}

static int by_begin(const void *one, const void *other)
{
    const struct plan_piece *a = one, *b = other;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

static void check_cover(struct plan_model *model, uint32_t rank)
{
    struct plan_target *target = &model->targets[rank];
    uint64_t at = 0;
    qsort(target->pieces, target->count, sizeof(*target->pieces), by_begin);
    model->site.rank = rank;
    for (uint32_t i = 0; i < target->count; i++) {
        demand(model, target->pieces[i].begin >= at, "a byte is written twice");
        demand(model, target->pieces[i].begin <= at, "a byte is not written");
        at = target->pieces[i].end;
    }
    demand(model, at == target->recv_bytes, "the end is not written");
}

static void run_model(struct plan_model *model)
{
    const uint32_t size = model->draw.size;
    uint64_t counts[CALLS_RANKS_MAX], recv_counts[CALLS_RANKS_MAX];
    for (uint32_t rank = 0; rank < size; rank++) {
        const struct sw_coll_call call = calls_of(&model->draw, 1, rank, counts, recv_counts);
        model->targets[rank].count = 0;
        model->targets[rank].send_bytes = calls_send_bytes(&call, rank, size);
        model->targets[rank].recv_bytes = calls_recv_bytes(&call, rank, size);
    }
    for (uint32_t rank = 0; rank < size; rank++) {
        static uint8_t somewhere;
        model->call = calls_of(&model->draw, 1, rank, counts, recv_counts);
        model->call.send = model->call.recv = &somewhere;
        model->site =
            (struct coll_site){.rank = rank,
                               .size = size,
                               .eager_bytes = 0,
                               .wanted = COLL_PLAN_OWNERS,
                               .scratch_bytes = model->draw.seed % 2 ? coll_scratch_min(size, 0)
                                                                     : coll_scratch_fit(size, 0)};
        model->table = (struct coll_table){.steps = model->steps, .room = coll_steps_max(size)};
        coll_plan_make(&model->table, &model->call, &model->site);
        if (model->call.kind == SW_COLL_BARRIER)
            return;
        check_table(model);
    }
    for (uint32_t rank = 0; rank < size; rank++)
        check_cover(model, rank);
}

static void coll_plan_make__covers_buffers_of_any_size(void **state)
{
    (void)state;
    static const uint32_t most[] = {4000000000, 100000, 100};
    static struct plan_model model;
    for (uint32_t size = 1; size <= CALLS_RANKS_MAX; size++) {
        for (uint64_t seed = 1; seed <= 40; seed++) {
            model.draw = (struct calls_draw){
                .seed = seed, .size = size, .kind = -1, .count_max = most[seed / 2 % 3]};
            run_model(&model);
        }
    }
    printf("%lu pieces; %lu tables of several chunks\n", (unsigned long)model.pieces,
           (unsigned long)model.multiple_chunks);
    assert_true(model.pieces > 100000 && model.multiple_chunks > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coll_plan_make__covers_buffers_of_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
