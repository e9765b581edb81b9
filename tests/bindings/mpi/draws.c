/* SPDX-License-Identifier: BSD-2-Clause */
#include "draws.h"

#include <math.h>
#include <string.h>

const struct draw_type draw_types[] = {
    {"int", MPI_INT, sizeof(int), DRAW_SIGNED},
    {"double", MPI_DOUBLE, sizeof(double), DRAW_FLOAT},
    {"float", MPI_FLOAT, sizeof(float), DRAW_FLOAT},
    {"int8_t", MPI_INT8_T, 1, DRAW_SIGNED},
    {"uint8_t", MPI_UINT8_T, 1, DRAW_UNSIGNED},
    {"short", MPI_SHORT, 2, DRAW_SIGNED},
    {"unsigned short", MPI_UNSIGNED_SHORT, 2, DRAW_UNSIGNED},
    {"unsigned", MPI_UNSIGNED, 4, DRAW_UNSIGNED},
    {"long", MPI_LONG, 8, DRAW_SIGNED},
    {"uint64_t", MPI_UINT64_T, 8, DRAW_UNSIGNED},
};
const int draw_type_count = sizeof(draw_types) / sizeof(*draw_types);

MPI_Op draw_op_handle(enum draw_op op)
{
    switch (op) {
    case DRAW_SUM:
        return MPI_SUM;
    case DRAW_PROD:
        return MPI_PROD;
    case DRAW_MIN:
        return MPI_MIN;
    case DRAW_MAX:
    case DRAW_OPS:
        break;
    }
    return MPI_MAX;
}

static uint64_t state;

static uint64_t mix_bits(uint64_t x) /* splitmix64 */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void draw_begin(uint64_t seed)
{
    state = mix_bits(seed);
}

uint32_t draw_next(uint32_t below)
{
    state = mix_bits(state);
    return (uint32_t)((state >> 32) * below >> 32);
}

void draw_element(const struct draw_type *type, uint64_t call, int rank, size_t index, void *to)
{
    uint64_t bits = mix_bits(mix_bits(call * 1024 + (uint64_t)rank) + index);
    if (type->kind != DRAW_FLOAT) {
        memcpy(to, &bits, type->bytes);
        return;
    }
    /* Sizes and signs are very different, so that another order gives other bits. */
    double value = ldexp((double)(int64_t)(bits % 20001) - 10000, (int)(bits >> 40) % 24 - 12);
    float narrow = (float)value;
    memcpy(to, type->bytes == 4 ? (void *)&narrow : (void *)&value, type->bytes);
}

void draw_fill(const struct draw_type *type, uint64_t call, int rank, size_t first, size_t count,
               void *to)
{
    for (size_t i = 0; i < count; i++)
        draw_element(type, call, rank, first + i, (char *)to + i * type->bytes);
}

/* Integers wrap, so they are folded without sign; of a narrow one only the low bytes count. */
static uint64_t fold_integers(enum draw_op op, uint64_t a, uint64_t b, bool is_less)
{
    switch (op) {
    case DRAW_SUM:
        return a + b;
    case DRAW_PROD:
        return a * b;
    case DRAW_MIN:
        return is_less ? b : a;
    case DRAW_MAX:
    case DRAW_OPS:
        break;
    }
    return is_less ? a : b;
}

static uint64_t read_integer(const struct draw_type *type, const void *from)
{
    uint64_t value = 0;
    memcpy(&value, from, type->bytes);
    unsigned unused = 64 - 8 * (unsigned)type->bytes;
    return type->kind == DRAW_SIGNED ? (uint64_t)((int64_t)(value << unused) >> unused) : value;
}

#define FOLD_FLOATS(c_type)                     \
    do {                                        \
        c_type a, b, c = 0;                     \
        memcpy(&a, to, sizeof(a));              \
        memcpy(&b, from, sizeof(b));            \
        c = op == DRAW_SUM    ? a + b           \
            : op == DRAW_PROD ? a * b           \
            : op == DRAW_MIN  ? (b < a ? b : a) \
                              : (b > a ? b : a); \
        memcpy(to, &c, sizeof(c));              \
    } while (0)

static void fold_element(const struct draw_type *type, enum draw_op op, void *to, const void *from)
{
    if (type->kind == DRAW_FLOAT && type->bytes == sizeof(float)) {
        FOLD_FLOATS(float);
    } else if (type->kind == DRAW_FLOAT) {
        FOLD_FLOATS(double);
    } else {
        uint64_t a = read_integer(type, to), b = read_integer(type, from);
        bool is_less = type->kind == DRAW_SIGNED ? (int64_t)b < (int64_t)a : b < a;
        uint64_t c = fold_integers(op, a, b, is_less);
        memcpy(to, &c, type->bytes);
    }
}

static void sum_ranks(const struct draw_type *type, enum draw_op op, uint64_t call, int first,
                      int end, size_t index, void *to)
{
    if (end - first == 1) {
        draw_element(type, call, first, index, to);
        return;
    }
    int half = 1;
    while (half * 2 < end - first)
        half *= 2;
    uint64_t right = 0;
    sum_ranks(type, op, call, first, first + half, index, to);
    sum_ranks(type, op, call, first + half, end, index, &right);
    fold_element(type, op, to, &right);
}

void draw_sum(const struct draw_type *type, enum draw_op op, uint64_t call, int ranks, size_t first,
              size_t count, void *to)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t sum = 0;
        sum_ranks(type, op, call, 0, ranks, first + i, &sum);
        memcpy((char *)to + i * type->bytes, &sum, type->bytes);
    }
}
