/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/command/pattern.h"

#include <math.h>
#include <string.h>

#include "common/base/minmax.h"

struct fold {
    enum sw_coll_type type;
    enum sw_coll_op op;
    bool is_any_order;
    uint32_t size;
    const uint32_t *order; /* NULL: that of the numbers of ranks */
    uint64_t index;
};

/* ---- 16-bit floats ---- */

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint16_t round_bf16(float value)
{
    const uint32_t bits = bits_of(value);
    return isnan(value) ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t round_f16(float value)
{
    const uint32_t sign = bits_of(value) >> 16 & 0x8000, bits = bits_of(value) & 0x7fffffff;
    if (isnan(value))
        return 0x7e00;
    if (bits >= 0x47800000) /* 65536 */
        return (uint16_t)(sign | 0x7c00);
    if (bits >= 0x38800000) /* 2^-14: below are the subnormals */
        return (uint16_t)(sign | ((bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13));
    const float scaled = float_of(bits) * 16777216.0f; /* 2^24 */
    const uint32_t whole = (uint32_t)scaled;
    const float rest = scaled - (float)whole;
    return (uint16_t)(sign | (whole + (rest > 0.5f || (rest >= 0.5f && whole % 2))));
}

static float extend_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, mantissa = half & 0x3ff;
    const uint32_t exponent = half >> 10 & 0x1f;
    if (exponent == 0x1f)
        return float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent)
        return float_of(sign | (((uint32_t)(half & 0x7fff) << 13) + 0x38000000));
    return float_of(sign | bits_of((float)mantissa / 16777216.0f));
}

/* ---- contributions ---- */

static bool is_float_type(enum sw_coll_type type)
{
    return type >= SW_COLL_F16 && type <= SW_COLL_F64;
}

static uint64_t mix_chance(uint64_t value) /* the end of MurmurHash3 */
{
    value = (value ^ value >> 33) * 0xff51afd7ed558ccd;
    value = (value ^ value >> 33) * 0xc4ceb9fe1a85ec53;
    return value ^ value >> 33;
}

static double double_of_chance(uint64_t chance, enum sw_coll_type type, enum sw_coll_op op)
{
    const double large = type == SW_COLL_F64 ? 1e17 : type == SW_COLL_F16 ? 3e4 : 1e8;
    const bool is_order = op == SW_COLL_MIN || op == SW_COLL_MAX;
    const double fraction = 1 + (double)(chance >> 40) / (1 << 24);
    switch (chance % (is_order ? 9 : 6)) {
    case 0:
        return op == SW_COLL_PROD ? 1.5 : large;
    case 1:
        return op == SW_COLL_PROD ? -0.75 : -large;
    case 2:
        return 1;
    case 3:
        return -1;
    case 4:
        return -fraction;
    case 6:
        return (double)NAN;
    case 7:
        return -0.0;
    case 8:
        return 0.0;
    default:
        return fraction;
    }
}

/* Exact in each step, of 1,024 ranks, too. */
static double whole_of_chance(uint64_t chance, enum sw_coll_op op)
{
    return op == SW_COLL_PROD ? (chance >> 40 & 1 ? 1 : -1) : (double)((chance >> 40) % 9) - 4;
}

/* The bits of an element in the low bytes. */
static uint64_t draw_contribution(const struct fold *fold, uint32_t rank)
{
    const uint64_t chance = mix_chance(fold->index * SW_COLL_RANKS_MAX + rank + 1);
    const bool is_whole = fold->is_any_order && fold->op != SW_COLL_MIN && fold->op != SW_COLL_MAX;
    const double value = is_whole ? whole_of_chance(chance, fold->op)
                                  : double_of_chance(chance, fold->type, fold->op);
    uint64_t bits = chance;
    if (fold->type == SW_COLL_F64)
        memcpy(&bits, &value, sizeof(bits));
    else if (fold->type == SW_COLL_F32)
        bits = bits_of((float)value);
    else if (fold->type == SW_COLL_BF16)
        bits = round_bf16((float)value);
    else if (fold->type == SW_COLL_F16)
        bits = round_f16((float)value);
    return bits;
}

/* ---- the tree ---- */

/* How many of `count` ranks are the left half: the largest power of two below. */
static uint32_t left_half(uint32_t count)
{
    uint32_t half = 1;
    while (half * 2 < count)
        half *= 2;
    return half;
}

/* -0 is below +0, and NaN goes before all. */
static double combine_order(enum sw_coll_op op, double left, double right)
{
    if (isnan(left) || isnan(right))
        return (double)NAN;
    const bool is_left_less = left < right || (left <= right && signbit(left));
    return is_left_less == (op == SW_COLL_MIN) ? left : right;
}

static uint32_t rank_in_order(const struct fold *fold, uint32_t place)
{
    return fold->order ? fold->order[place] : place;
}

static float fold_float(const struct fold *fold, uint32_t first, uint32_t count)
{
    if (count == 1) {
        const uint32_t bits = (uint32_t)draw_contribution(fold, rank_in_order(fold, first));
        return fold->type == SW_COLL_F16    ? extend_f16((uint16_t)bits)
               : fold->type == SW_COLL_BF16 ? float_of(bits << 16)
                                            : float_of(bits);
    }
    const uint32_t half = left_half(count);
    const float left = fold_float(fold, first, half);
    const float right = fold_float(fold, first + half, count - half);
    if (fold->op == SW_COLL_MIN || fold->op == SW_COLL_MAX)
        return (float)combine_order(fold->op, (double)left, (double)right);
    return fold->op == SW_COLL_PROD ? left * right : left + right;
}

static double fold_double(const struct fold *fold, uint32_t first, uint32_t count)
{
    if (count == 1) {
        const uint64_t bits = draw_contribution(fold, rank_in_order(fold, first));
        double value;
        memcpy(&value, &bits, sizeof(value));
        return value;
    }
    const uint32_t half = left_half(count);
    const double left = fold_double(fold, first, half);
    const double right = fold_double(fold, first + half, count - half);
    if (fold->op == SW_COLL_MIN || fold->op == SW_COLL_MAX)
        return combine_order(fold->op, left, right);
    return fold->op == SW_COLL_PROD ? left * right : left + right;
}

/* An integer of the type's width, with its sign. */
static uint64_t fit_integer(enum sw_coll_type type, uint64_t value)
{
    const unsigned unused = 64 - 8 * (unsigned)sw_coll_type_bytes(type);
    const bool is_signed =
        type == SW_COLL_I8 || type == SW_COLL_I16 || type == SW_COLL_I32 || type == SW_COLL_I64;
    return is_signed ? (uint64_t)((int64_t)(value << unused) >> unused) : value << unused >> unused;
}

static bool is_integer_less(enum sw_coll_type type, uint64_t left, uint64_t right)
{
    return type == SW_COLL_U64 ? left < right : (int64_t)left < (int64_t)right;
}

static uint64_t fold_integer(const struct fold *fold)
{
    uint64_t result = fit_integer(fold->type, draw_contribution(fold, 0));
    for (uint32_t rank = 1; rank < fold->size; rank++) { /* these are alike in each order */
        const uint64_t next = fit_integer(fold->type, draw_contribution(fold, rank));
        if (fold->op == SW_COLL_PROD)
            result *= next;
        else if (fold->op == SW_COLL_SUM || fold->op == SW_COLL_AVG)
            result += next;
        else if (is_integer_less(fold->type, next, result) == (fold->op == SW_COLL_MIN))
            result = next;
    }
    result = fit_integer(fold->type, result);
    if (fold->op != SW_COLL_AVG)
        return result;
    return fold->type == SW_COLL_U64 ? result / fold->size
                                     : (uint64_t)((int64_t)result / (int64_t)fold->size);
}

/* A NaN has one form as a result. */
static uint64_t result_bits(const struct fold *fold)
{
    const bool is_average = fold->op == SW_COLL_AVG;
    uint64_t bits;
    if (!is_float_type(fold->type))
        return fold_integer(fold);
    if (fold->type == SW_COLL_F64) {
        double sum = fold_double(fold, 0, fold->size);
        sum = is_average ? sum / fold->size : sum;
        memcpy(&bits, &sum, sizeof(bits));
        return isnan(sum) ? 0x7ff8000000000000 : bits;
    }
    float sum = fold_float(fold, 0, fold->size);
    sum = is_average ? sum / (float)fold->size : sum;
    if (fold->type == SW_COLL_F32)
        return isnan(sum) ? 0x7fc00000 : bits_of(sum);
    return fold->type == SW_COLL_F16 ? round_f16(sum) : round_bf16(sum);
}

/* ---- tiles ---- */

static void put_element(struct co_tile *tile, uint64_t index, uint64_t bits)
{
    memcpy(tile->bytes + index * tile->element, &bits, tile->element); /* little-endian */
}

void co_tile_of_rank(struct co_tile *tile, enum sw_coll_type type, enum sw_coll_op op,
                     uint32_t rank)
{
    struct fold fold = {.type = type, .op = op, .is_any_order = tile->is_any_order};
    tile->element = sw_coll_type_bytes(type);
    for (; fold.index < CO_TILE_ELEMENTS; fold.index++)
        put_element(tile, fold.index, draw_contribution(&fold, rank));
}

void co_tile_of_all(struct co_tile *tile, enum sw_coll_type type, enum sw_coll_op op, uint32_t size)
{
    struct fold fold = {.type = type,
                        .op = op,
                        .is_any_order = tile->is_any_order,
                        .size = size,
                        .order = tile->order};
    tile->element = sw_coll_type_bytes(type);
    for (; fold.index < CO_TILE_ELEMENTS; fold.index++)
        put_element(tile, fold.index, result_bits(&fold));
}

void co_tile_spread(const struct co_tile *tile, uint64_t first, uint64_t count, void *to)
{
    uint8_t *at = to;
    while (count) {
        const uint64_t from = first % CO_TILE_ELEMENTS;
        const uint64_t run = mover_min_u64(count, CO_TILE_ELEMENTS - from);
        memcpy(at, tile->bytes + from * tile->element, run * tile->element);
        at += run * tile->element;
        first += run;
        count -= run;
    }
}

uint64_t co_tile_differs(const struct co_tile *tile, uint64_t first, uint64_t count,
                         const void *from)
{
    const uint8_t *at = from;
    uint64_t wrong = 0;
    while (count) {
        const uint64_t place = first % CO_TILE_ELEMENTS;
        const uint64_t run = mover_min_u64(count, CO_TILE_ELEMENTS - place);
        const uint8_t *right = tile->bytes + place * tile->element;
        if (memcmp(at, right, run * tile->element))
            for (uint64_t i = 0; i < run; i++)
                wrong +=
                    memcmp(at + i * tile->element, right + i * tile->element, tile->element) != 0;
        at += run * tile->element;
        first += run;
        count -= run;
    }
    return wrong;
}
