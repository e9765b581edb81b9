/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tree, in blocks that stay in the first level's cache: each source is read once, the result is
 * written once, and folds of parts of the leaves lie on the stack, one block for each level of the
 * tree. Two leaves need no block.
 */
#include "collectives/core/fold.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "collectives/core/float_env.h"
#include "collectives/core/loops.h"

enum { BLOCK_BYTES = 4096 };

static const uint8_t type_bytes[SW_COLL_TYPES] = {
    [SW_COLL_I8] = 1,  [SW_COLL_U8] = 1,   [SW_COLL_I16] = 2, [SW_COLL_U16] = 2,
    [SW_COLL_I32] = 4, [SW_COLL_U32] = 4,  [SW_COLL_I64] = 8, [SW_COLL_U64] = 8,
    [SW_COLL_F16] = 2, [SW_COLL_BF16] = 2, [SW_COLL_F32] = 4, [SW_COLL_F64] = 8,
};

/* ---- which loops ---- */

#if defined(__x86_64__)

static bool has_f16c(void)
{
    unsigned a, b, c, d; /* clang 14 has no name for it in __builtin_cpu_supports() */
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool can_run(const struct coll_loops *loops)
{
    if (loops == &coll_loops_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return loops != &coll_loops_avx2 || (__builtin_cpu_supports("avx2") && has_f16c());
}

static const struct coll_loops *const widest_first[] = {&coll_loops_avx512, &coll_loops_avx2,
                                                        &coll_loops_generic};

#else

static bool can_run(const struct coll_loops *loops)
{
    return loops == &coll_loops_generic;
}

static const struct coll_loops *const widest_first[] = {&coll_loops_generic};

#endif

const char *coll_fold_unknown(void)
{
    static const char *const known[] = {"", "generic", "avx2", "avx512"};
    const char *wanted = getenv("SIDEWIRE_COLL_FOLD");
    for (size_t i = 0; wanted && i < sizeof(known) / sizeof(*known); i++)
        if (!strcmp(wanted, known[i]))
            return NULL;
    return wanted;
}

/* The widest that the processor has, from the one on that SIDEWIRE_COLL_FOLD names. */
static const struct coll_loops *choose_loops(void)
{
    enum { SETS = sizeof(widest_first) / sizeof(widest_first[0]) };
    const char *limit = getenv("SIDEWIRE_COLL_FOLD");
    unsigned at = 0;
    while (limit && at < SETS && strcmp(limit, widest_first[at]->name))
        at++;
    if (at == SETS)
        at = 0;
    while (!can_run(widest_first[at]))
        at++;
    return widest_first[at];
}

static const struct coll_loops *chosen_loops(void)
{
    static const struct coll_loops *_Atomic chosen;
    const struct coll_loops *loops = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!loops) {
        loops = choose_loops();
        atomic_store_explicit(&chosen, loops, memory_order_relaxed);
    }
    return loops;
}

const char *coll_fold_instructions(void)
{
    return chosen_loops()->name;
}

/* ---- types ---- */

static bool is_float(enum sw_coll_type type)
{
    return type >= SW_COLL_F16;
}

static bool is_half(enum sw_coll_type type)
{
    return type == SW_COLL_F16 || type == SW_COLL_BF16;
}

static enum sw_coll_type type_of_partial(enum sw_coll_type type)
{
    return is_half(type) ? SW_COLL_F32 : type;
}

static enum sw_coll_op op_of_pairs(enum sw_coll_op op)
{
    return op == SW_COLL_AVG ? SW_COLL_SUM : op;
}

size_t coll_type_bytes(enum sw_coll_type type)
{
    return type_bytes[type];
}

size_t coll_partial_bytes(enum sw_coll_type type)
{
    return type_bytes[type_of_partial(type)];
}

/* ---- the tree ---- */

/* Which loops a fold takes. Its inner values are leaves, or f32 where `widen` makes these of
 * them. */
struct tree {
    const void *const *sources;
    coll_pair_loop *leaf_pair; /* two leaves into an inner value; NULL: widen both */
    coll_pair_loop *pair;      /* two inner values */
    coll_loop *widen;          /* a leaf into an inner value; NULL: it is one */
    coll_loop *end;            /* an inner value into a result; NULL: it is one */
    unsigned leaves, divisor;
    size_t leaf_bytes, inner_bytes, result_bytes;
    /* The block that is being folded. */
    size_t at, count;
};

static unsigned largest_power_below(unsigned leaves)
{
    return 1u << (31 - __builtin_clz(leaves - 1));
}

static const void *leaf_at(const struct tree *tree, unsigned leaf)
{
    return (const uint8_t *)tree->sources[leaf] + tree->at * tree->leaf_bytes;
}

static const void *fold_range(const struct tree *tree, unsigned first, unsigned leaves,
                              void *block);

/* `to` may be `left_block`, and a source: all that is read of it has been by then. Not inlined:
 * two blocks are more than a frame may have. */
__attribute__((noinline)) static void fold_halves(const struct tree *tree, unsigned first,
                                                  unsigned leaves, void *left_block, void *to)
{
    _Alignas(64) uint8_t right_block[BLOCK_BYTES];
    const unsigned half = largest_power_below(leaves);
    const void *left = fold_range(tree, first, half, left_block);
    const void *right = fold_range(tree, first + half, leaves - half, right_block);
    tree->pair(to, left, right, tree->count);
}

/* Where the fold of these leaves is: in `block`, or a single leaf where it lies. */
static const void *fold_range(const struct tree *tree, unsigned first, unsigned leaves, void *block)
{
    if (leaves == 1 && !tree->widen)
        return leaf_at(tree, first);
    if (leaves == 1)
        tree->widen(block, leaf_at(tree, first), tree->count, 1);
    else if (leaves == 2 && tree->leaf_pair)
        tree->leaf_pair(block, leaf_at(tree, first), leaf_at(tree, first + 1), tree->count);
    else
        fold_halves(tree, first, leaves, block, block);
    return block;
}

static void fold_blocks(struct tree *tree, void *result, size_t count)
{
    _Alignas(64) uint8_t block[BLOCK_BYTES];
    const size_t step = BLOCK_BYTES / tree->inner_bytes;
    for (tree->at = 0; tree->at < count; tree->at += step) {
        tree->count = count - tree->at < step ? count - tree->at : step;
        void *to = (uint8_t *)result + tree->at * tree->result_bytes;
        if (tree->end)
            tree->end(to, fold_range(tree, 0, tree->leaves, block), tree->count, tree->divisor);
        else
            fold_halves(tree, 0, tree->leaves, block, to);
    }
}

/* A fold of values that are all of one type. */
static void fold_alike(const struct coll_loops *loops, enum sw_coll_type type, enum sw_coll_op op,
                       void *result, const void *const *sources, unsigned leaves, size_t count,
                       coll_loop *end)
{
    coll_pair_loop *pair = loops->pairs[type][op_of_pairs(op)];
    const size_t bytes = type_bytes[type];
    if (leaves == 2 && !end) {
        pair(result, sources[0], sources[1], count);
    } else if (leaves == 1 && is_float(type)) {
        /* What is least of a value and itself is that value, and the canonical NaN of any NaN. */
        loops->pairs[type][SW_COLL_MIN](result, sources[0], sources[0], count);
    } else if (leaves == 1) {
        if (result != sources[0])
            memcpy(result, sources[0], count * bytes);
    } else {
        struct tree tree = {.sources = sources,
                            .leaf_pair = pair,
                            .pair = pair,
                            .end = end,
                            .leaves = leaves,
                            .divisor = leaves,
                            .leaf_bytes = bytes,
                            .inner_bytes = bytes,
                            .result_bytes = bytes};
        fold_blocks(&tree, result, count);
    }
}

/* A fold of 16-bit floats by way of f32, which are its result where `end` is NULL. */
static void fold_wide(const struct coll_loops *loops, const struct coll_wide *wide,
                      enum sw_coll_op op, void *result, const void *const *sources, unsigned leaves,
                      size_t count, coll_loop *end)
{
    const size_t half_bytes = sizeof(uint16_t);
    struct tree tree = {.sources = sources,
                        .leaf_pair = wide->pairs[op_of_pairs(op)],
                        .pair = loops->pairs[SW_COLL_F32][op_of_pairs(op)],
                        .widen = wide->widen,
                        .end = end,
                        .leaves = leaves,
                        .divisor = leaves,
                        .leaf_bytes = half_bytes,
                        .inner_bytes = sizeof(float),
                        .result_bytes = end ? half_bytes : sizeof(float)};
    if (leaves == 1 && !end)
        tree.widen(result, sources[0], count, 1);
    else if (leaves == 2 && !end && tree.leaf_pair)
        tree.leaf_pair(result, sources[0], sources[1], count);
    else
        fold_blocks(&tree, result, count);
}

static void fold_into_results(const struct coll_loops *loops, enum sw_coll_type type,
                              enum sw_coll_op op, void *result, const void *const *sources,
                              unsigned leaves, size_t count)
{
    const bool is_average = op == SW_COLL_AVG && leaves > 1;
    /* A pair has a loop that rounds, and to find the least and the greatest nothing is rounded. */
    const bool is_rounded_once = leaves <= 2 || op == SW_COLL_MIN || op == SW_COLL_MAX;
    const struct coll_wide *wide = &loops->in_blocks[type];
    if (is_half(type) && (is_average || !is_rounded_once))
        fold_wide(loops, wide, op, result, sources, leaves, count,
                  is_average ? wide->average : wide->narrow);
    else
        fold_alike(loops, type, op, result, sources, leaves, count,
                   is_average ? loops->average[type] : NULL);
}

/* ---- what others call ---- */

void coll_fold(enum sw_coll_type type, enum sw_coll_op op, void *result, const void *const *sources,
               unsigned leaves, size_t count)
{
    assert(leaves);
    const struct float_env env = float_env_enter();
    fold_into_results(chosen_loops(), type, op, result, sources, leaves, count);
    float_env_leave(env);
}

void coll_fold_leaves(enum sw_coll_type type, enum sw_coll_op op, void *partial,
                      const void *const *sources, unsigned leaves, size_t count)
{
    const struct coll_loops *loops = chosen_loops();
    assert(leaves);
    const struct float_env env = float_env_enter();
    if (is_half(type))
        fold_wide(loops, &loops->in_order[type], op, partial, sources, leaves, count, NULL);
    else
        fold_alike(loops, type, op, partial, sources, leaves, count, NULL);
    float_env_leave(env);
}

void coll_fold_partials(enum sw_coll_type type, enum sw_coll_op op, void *partial,
                        const void *const *partials, unsigned partials_count, size_t count)
{
    coll_fold_leaves(type_of_partial(type), op, partial, partials, partials_count, count);
}

void coll_fold_finish(enum sw_coll_type type, enum sw_coll_op op, unsigned leaves, void *result,
                      const void *partial, size_t count)
{
    const struct coll_loops *loops = chosen_loops();
    const struct coll_wide *wide = &loops->in_order[type];
    coll_loop *end = is_half(type) ? wide->narrow : NULL;
    if (op == SW_COLL_AVG)
        end = is_half(type) ? wide->average : loops->average[type];
    if (end) {
        const struct float_env env = float_env_enter();
        end(result, partial, count, leaves);
        float_env_leave(env);
    } else if (result != partial) {
        memcpy(result, partial, count * type_bytes[type]);
    }
}
