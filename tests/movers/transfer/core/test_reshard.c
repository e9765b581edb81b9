/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Plans of random layouts beside nested loops: all sources' plans for a target move each vector of
 * its share once, to where the loops find it, and touch nothing else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidewire/transfer_plan.h"

enum { ROUNDS = 400, RANKS_MAX = 12, BLOCKS_MAX = 24, UNTOUCHED = 0xee };

/* One rank's memory, its parts one behind the other, and how often each byte was written. */
struct memory {
    uint8_t *bytes, *written;
    uint64_t part_bytes, total;
};

struct world {
    struct sw_plan_model model;
    struct sw_plan_side sides[2]; /* rank and layers are set for each rank */
    uint32_t stages[2];           /* that the layers are split into */
    uint32_t tables[2][BLOCKS_MAX];
    struct memory memories[2][RANKS_MAX * 3];
    uint64_t first, tokens;
};

static uint32_t draw(uint32_t least, uint32_t most)
{
    return least + (uint32_t)rand() % (most - least + 1);
}

/* ---- the oracle: where a vector is, by the letters of the order ---- */

struct vector {
    uint32_t layer, plane, head;
    uint64_t token;
};

static uint32_t heads_of(const struct world *w, const struct sw_plan_side *side)
{
    return side->ranks > w->model.heads ? 1 : w->model.heads / side->ranks;
}

static uint32_t first_head_of(const struct world *w, const struct sw_plan_side *side)
{
    return side->ranks > w->model.heads ? side->rank / (side->ranks / w->model.heads)
                                        : side->rank * heads_of(w, side);
}

static uint64_t place_of(const struct world *w, const struct sw_plan_side *side,
                         const struct vector *vector)
{
    const uint64_t block = vector->token / side->block_tokens;
    uint64_t index = 0;
    for (const char *at = side->order; *at; at++) {
        switch (*at) {
        case 'L':
            index = index * side->layers + (vector->layer - side->layer_first);
            break;
        case 'P':
            index = index * w->model.planes + vector->plane;
            break;
        case 'B':
            index = index * side->blocks + (side->table ? side->table[block] : block);
            break;
        case 'T':
            index = index * side->block_tokens + vector->token % side->block_tokens;
            break;
        case 'H':
            index = index * heads_of(w, side) + (vector->head - first_head_of(w, side));
            break;
        default: /* parts lie one behind the other here */
            break;
        }
    }
    return index * w->model.head_elements * w->model.element_bytes;
}

static uint8_t byte_of(const struct vector *vector, uint32_t at)
{
    uint64_t hash = 0x9e3779b97f4a7c15u;
    const uint64_t parts[] = {vector->layer, vector->plane, vector->head, vector->token, at};
    for (int i = 0; i < 5; i++)
        hash = (hash ^ parts[i]) * 0xff51afd7ed558ccdu, hash ^= hash >> 32;
    return (uint8_t)hash;
}

/* Calls it for each vector of the request that this rank has. */
static void each_vector(const struct world *w, const struct sw_plan_side *side,
                        struct memory *memory,
                        void (*what)(struct memory *, uint64_t, uint32_t, const struct vector *))
{
    const uint32_t bytes = w->model.head_elements * w->model.element_bytes;
    struct vector v;
    for (uint32_t layer = 0; layer < side->layers; layer++)
        for (v.plane = 0; v.plane < w->model.planes; v.plane++)
            for (v.token = w->first; v.token < w->first + w->tokens; v.token++)
                for (uint32_t head = 0; head < heads_of(w, side); head++) {
                    v.layer = side->layer_first + layer;
                    v.head = first_head_of(w, side) + head;
                    what(memory, place_of(w, side, &v), bytes, &v);
                }
}

static void fill_vector(struct memory *memory, uint64_t at, uint32_t bytes,
                        const struct vector *vector)
{
    for (uint32_t i = 0; i < bytes; i++)
        memory->bytes[at + i] = byte_of(vector, i);
}

static void check_vector(struct memory *memory, uint64_t at, uint32_t bytes,
                         const struct vector *vector)
{
    for (uint32_t i = 0; i < bytes; i++) {
        assert_int_equal(memory->bytes[at + i], byte_of(vector, i));
        assert_int_equal(memory->written[at + i]--, 1);
    }
}

/* ---- random worlds ---- */

static const char *draw_order(void)
{
    static char orders[2][8];
    static int turn;
    char *order = orders[turn++ % 2];
    strcpy(order, "LPBTH");
    for (int i = 5; i > 1; i--) {
        const int other = rand() % i;
        const char kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
    int outside = 0;
    while (outside < 2 && (order[outside] == 'L' || order[outside] == 'P'))
        outside++;
    if (outside && rand() % 2) {
        outside = (int)draw(1, (uint32_t)outside);
        memmove(order + outside + 1, order + outside, strlen(order + outside) + 1);
        order[outside] = '/';
    }
    return order;
}

static void draw_side(struct world *w, int which)
{
    static const uint32_t ranks[] = {1, 2, 3, 4, 6, 12};
    struct sw_plan_side *side = &w->sides[which];
    const uint64_t end = w->first + w->tokens;
    *side = (struct sw_plan_side){.order = draw_order(), .block_tokens = draw(1, 6)};
    do {
        side->ranks = ranks[rand() % 6];
    } while (side->ranks > w->model.heads ? side->ranks % w->model.heads
                                          : w->model.heads % side->ranks);
    const uint32_t needed = (uint32_t)((end + side->block_tokens - 1) / side->block_tokens);
    side->blocks = needed + draw(0, 3);
    if (rand() % 4) {
        for (uint32_t i = 0; i < side->blocks; i++)
            w->tables[which][i] = i;
        for (uint32_t i = side->blocks; i > 1 && rand() % 8; i--) {
            const uint32_t other = (uint32_t)rand() % i, kept = w->tables[which][i - 1];
            w->tables[which][i - 1] = w->tables[which][other];
            w->tables[which][other] = kept;
        }
        side->table = w->tables[which];
        side->table_count = needed;
    }
    w->stages[which] = draw(1, w->model.layers);
}

/* The layers of a stage: as even as can be. */
static struct sw_plan_side side_of(const struct world *w, int which, uint32_t number)
{
    struct sw_plan_side side = w->sides[which];
    const uint32_t stage = number / side.ranks, stages = w->stages[which];
    side.rank = number % side.ranks;
    side.layer_first = stage * w->model.layers / stages;
    side.layers = (stage + 1) * w->model.layers / stages - side.layer_first;
    return side;
}

static uint32_t ranks_of(const struct world *w, int which)
{
    return w->sides[which].ranks * w->stages[which];
}

static void draw_world(struct world *w)
{
    static const uint32_t heads[] = {1, 2, 3, 4, 6, 12};
    memset(w, 0, sizeof(*w));
    w->model = (struct sw_plan_model){.layers = draw(1, 3),
                                      .planes = draw(1, 2),
                                      .heads = heads[rand() % 6],
                                      .head_elements = draw(1, 4),
                                      .element_bytes = draw(1, 2)};
    w->first = draw(0, 4);
    w->tokens = draw(1, 14);
    for (int which = 0; which < 2; which++) {
        draw_side(w, which);
        for (uint32_t i = 0; i < ranks_of(w, which); i++) {
            const struct sw_plan_side side = side_of(w, which, i);
            struct memory *memory = &w->memories[which][i];
            uint32_t parts;
            assert_int_equal(sw_plan_memory(&w->model, &side, NULL, &parts, &memory->part_bytes),
                             SW_XFER_OK);
            memory->total = parts * memory->part_bytes;
            memory->bytes = malloc(memory->total);
            memory->written = calloc(memory->total, 1);
            memset(memory->bytes, UNTOUCHED, memory->total);
            if (!which)
                each_vector(w, &side, memory, fill_vector);
        }
    }
}

static void free_world(struct world *w)
{
    for (int which = 0; which < 2; which++)
        for (uint32_t i = 0; i < ranks_of(w, which); i++) {
            free(w->memories[which][i].bytes);
            free(w->memories[which][i].written);
        }
}

/* ---- plans, as their users expand them ---- */

struct block {
    uint64_t at, bytes; /* parts one behind the other */
    uint32_t part;
};

static struct block *expand(const struct sw_xfer_extent *extents, uint32_t count, uint32_t blocks,
                            const struct memory *memory)
{
    struct block *all = malloc((blocks + 1) * sizeof(*all));
    uint32_t made = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t k = 0; k < extents[i].count; k++) {
            const uint64_t offset = extents[i].offset + k * extents[i].stride;
            assert_true(made < blocks && offset + extents[i].bytes <= memory->part_bytes);
            all[made++] = (struct block){.at = extents[i].part * memory->part_bytes + offset,
                                         .bytes = extents[i].bytes,
                                         .part = extents[i].part};
            assert_true(all[made - 1].at + all[made - 1].bytes <= memory->total);
        }
    assert_int_equal(made, blocks);
    return all;
}

static void apply(const struct sw_plan *plan, const struct memory *source, struct memory *target)
{
    struct block *from = expand(plan->source, plan->source_count, plan->blocks, source);
    struct block *to = expand(plan->target, plan->target_count, plan->blocks, target);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->blocks; i++) {
        assert_int_equal(from[i].bytes, to[i].bytes);
        memcpy(target->bytes + to[i].at, source->bytes + from[i].at, to[i].bytes);
        for (uint64_t k = 0; k < to[i].bytes; k++)
            target->written[to[i].at + k]++;
        bytes += to[i].bytes;
        if (!i)
            continue;
        assert_true(from[i - 1].at < from[i].at); /* so these two alone can be one */
        assert_false(from[i - 1].part == from[i].part && to[i - 1].part == to[i].part &&
                     from[i - 1].at + from[i - 1].bytes == from[i].at &&
                     to[i - 1].at + to[i - 1].bytes == to[i].at);
    }
    assert_int_equal(bytes, plan->bytes);
    free(from);
    free(to);
}

static void reshard__is_what_nested_loops_do(void **state)
{
    (void)state;
    static struct world world;
    struct world *w = &world;
    srand(11);
    for (int round = 0; round < ROUNDS; round++) {
        draw_world(w);
        for (uint32_t t = 0; t < ranks_of(w, 1); t++) {
            const struct sw_plan_side target = side_of(w, 1, t);
            struct memory *memory = &w->memories[1][t];
            for (uint32_t s = 0; s < ranks_of(w, 0); s++) {
                const struct sw_plan_side source = side_of(w, 0, s);
                struct sw_plan plan;
                assert_int_equal(
                    sw_plan_reshard(&w->model, &source, &target, w->first, w->tokens, NULL, &plan),
                    SW_XFER_OK);
                apply(&plan, &w->memories[0][s], memory);
                sw_plan_free(&plan);
            }
            each_vector(w, &target, memory, check_vector);
            for (uint64_t i = 0; i < memory->total; i++)
                assert_int_equal(memory->written[i], 0); /* else it is outside of the share */
        }
        free_world(w);
    }
}

/* ---- known plans ---- */

static const struct sw_plan_model llama = {
    .layers = 32, .planes = 2, .heads = 8, .head_elements = 128, .element_bytes = 2};

static struct sw_plan plan_of(const char *from, uint32_t from_ranks, const char *to,
                              uint32_t to_ranks, uint32_t to_block_tokens)
{
    const struct sw_plan_side source = {
        .order = from, .ranks = from_ranks, .block_tokens = 16, .blocks = 64};
    const struct sw_plan_side target = {.order = to,
                                        .ranks = to_ranks,
                                        .block_tokens = to_block_tokens,
                                        .blocks = 1024 / to_block_tokens};
    struct sw_plan plan;
    assert_int_equal(sw_plan_reshard(&llama, &source, &target, 0, 1024, NULL, &plan), SW_XFER_OK);
    return plan;
}

static void reshard__joins_and_strides(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        uint32_t from_ranks, to_ranks, to_block_tokens, blocks, source_count, target_count;
    } rows[] = {
        {"LPBTH", "LPBTH", 4, 4, 16, 1, 1, 1},      /* alike: all of it */
        {"LPBTH", "LPBTH", 4, 4, 32, 1, 1, 1},      /* larger blocks in a row are alike, too */
        {"L/PBTH", "L/PBTH", 4, 4, 16, 32, 32, 32}, /* a memory for each layer */
        {"LPBTH", "LPBTH", 1, 2, 16, 65536, 1, 1},  /* half of each token */
        {"LPBHT", "LPBHT", 1, 2, 16, 4096, 1, 1},   /* half of each block */
        {"LPBHT", "LPBTH", 8, 8, 16, 1, 1, 1},      /* with one head they are alike */
        {"BLPTH", "LPBTH", 1, 1, 16, 4096, 1, 64},  /* whole planes of blocks */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct sw_plan plan = plan_of(rows[i].from, rows[i].from_ranks, rows[i].to,
                                      rows[i].to_ranks, rows[i].to_block_tokens);
        assert_int_equal(plan.blocks, rows[i].blocks);
        assert_int_equal(plan.source_count, rows[i].source_count);
        assert_int_equal(plan.target_count, rows[i].target_count);
        assert_int_equal(plan.bytes, 32ull * 2 * 1024 * 8 * 256 / rows[i].to_ranks);
        sw_plan_free(&plan);
    }
}

static void reshard__replicas_take_turns(void **state)
{
    (void)state;
    const struct sw_plan_model model = {
        .layers = 1, .planes = 1, .heads = 2, .head_elements = 4, .element_bytes = 1};
    struct sw_plan_side source = {.order = "LPBTH", .ranks = 8, .block_tokens = 1, .blocks = 1};
    struct sw_plan_side target = {.order = "LPBTH", .ranks = 8, .block_tokens = 1, .blocks = 1};
    for (source.rank = 0; source.rank < 8; source.rank++) {
        uint32_t serves = 0;
        for (target.rank = 0; target.rank < 8; target.rank++) {
            struct sw_plan plan;
            assert_int_equal(sw_plan_reshard(&model, &source, &target, 0, 1, NULL, &plan),
                             SW_XFER_OK);
            serves += plan.blocks;
            assert_true(plan.blocks || (!plan.source && !plan.target && !plan.bytes));
            sw_plan_free(&plan);
        }
        assert_int_equal(serves, 1); /* none has more to do than the others */
    }
}

/* ---- what is refused ---- */

static void check_refused(const struct sw_plan_model *model, const struct sw_plan_side *side,
                          uint64_t first, uint64_t tokens, const char *why)
{
    const struct sw_plan_side good = {.order = "LPBTH", .ranks = 1, .block_tokens = 1, .blocks = 8};
    struct sw_xfer_error error = {.status = SW_XFER_OK};
    struct sw_plan plan;
    assert_int_equal(sw_plan_reshard(model, &good, side, first, tokens, &error, &plan),
                     SW_XFER_INVALID);
    assert_int_equal(error.status, SW_XFER_INVALID);
    if (!strstr(error.text, why))
        fail_msg("\"%s\" does not say \"%s\"", error.text, why);
}

static void reshard__what_contradicts_itself_is_refused(void **state)
{
    (void)state;
    static const uint32_t twins[] = {1, 1}, outside[] = {0, 4};
    const struct sw_plan_side good = {.order = "LPBTH", .ranks = 2, .block_tokens = 4, .blocks = 4};
    const char *const orders[] = {NULL,    "",       "LPBT",    "LPBTT",  "LPBTHH",
                                  "LPBTX", "B/LPTH", "L/P/BTH", "/LPBTH", "LPBTH/"};
    struct sw_plan_side side;
    for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++) {
        side = good;
        side.order = orders[i];
        check_refused(&llama, &side, 0, 8, "an order is");
    }
#define WRONG(field, value, why) \
    side = good;                 \
    side.field = value;          \
    check_refused(&llama, &side, 0, 8, why)
    WRONG(ranks, 0, "no such rank");
    WRONG(rank, 2, "no such rank");
    WRONG(ranks, 3, "neither divides");
    WRONG(ranks, 12, "neither divides");
    WRONG(blocks, 0, "has blocks");
    WRONG(blocks, UINT32_MAX, "has blocks");
    WRONG(block_tokens, 0, "has blocks");
    WRONG(block_tokens, 1, "not so many tokens");
    WRONG(layer_first, 32, "no such layers");
    WRONG(layers, 33, "no such layers");
#undef WRONG
    side = good;
    side.table = twins;
    side.table_count = 2;
    check_refused(&llama, &side, 0, 8, "twice");
    side.table = outside;
    check_refused(&llama, &side, 0, 8, "that is none");
    check_refused(&llama, &side, 1, 8, "not so many tokens");
    side.table_count = 5;
    check_refused(&llama, &side, 0, 8, "longer");
    check_refused(&llama, &good, 0, 0, "at least one");
    check_refused(&llama, &good, UINT64_MAX, 2, "at least one");
    struct sw_plan_model model = llama;
    model.planes = 3;
    check_refused(&model, &good, 0, 8, "planes");
    model = llama;
    model.head_elements = model.element_bytes = UINT32_MAX;
    check_refused(&model, &good, 0, 8, "too many bytes");
    model.layers = 1 << 20;
    model.head_elements = model.element_bytes = 1;
    side = good;
    side.order = "LP/BTH";
    struct sw_xfer_error error;
    uint32_t parts;
    uint64_t bytes;
    assert_int_equal(sw_plan_memory(&model, &side, &error, &parts, &bytes), SW_XFER_INVALID);
    assert_non_null(strstr(error.text, "parts"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reshard__is_what_nested_loops_do),
        cmocka_unit_test(reshard__joins_and_strides),
        cmocka_unit_test(reshard__replicas_take_turns),
        cmocka_unit_test(reshard__what_contradicts_itself_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
