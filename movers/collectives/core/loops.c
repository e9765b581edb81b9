/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the compiler makes of plain loops: movers/collectives/meson.build has it do so for each set
 * of instructions, with COLL_LOOPS as the table's name. Only f16 has instructions of its own
 * (half.h). Products and sums are never fused (-ffp-contract=off).
 *
 * 1. A canonical NaN costs time in the first level's cache alone. Sums of f32 by AVX2, GB/s of
 *    results, without and with it: 81 and 43 at 16 KiB, 35 and 33 at 64 KiB, 10 and 10 at 1 MiB.
 *    Without it the payload would depend on how the compiler orders operands.
 * 2. bf16 are folded as the lower and the upper halves of 32 bits, which stay in their lanes. Sums
 *    of two take AVX-512 to 18 GB/s, of four to 11. Each in a lane of its own: to 11 and 6.
 * 3. For more leaves there are no loops: pairs of pairs in one loop are 6% faster than by blocks.
 */
#include "collectives/core/loops.h"

#include <float.h>
#include <stdbool.h>
#include <stdint.h>

#include "collectives/core/half.h"

#if !defined(COLL_LOOPS)
#define COLL_LOOPS coll_loops_generic
#define COLL_LOOPS_NAME "generic"
#endif

_Static_assert(FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 16, "f32 is computed as f32");
_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "f32 and f64");

/* What lies at any address. */
#define LOOSE __attribute__((aligned(1), may_alias))
typedef int8_t loose_i8 LOOSE;
typedef uint8_t loose_u8 LOOSE;
typedef int16_t loose_i16 LOOSE;
typedef int32_t loose_i32 LOOSE;
typedef uint32_t loose_u32 LOOSE;
typedef int64_t loose_i64 LOOSE;
typedef uint64_t loose_u64 LOOSE;
typedef double loose_f64 LOOSE;

/* `omp simd`: no element depends on another, also where `to` is a source. */
#define EACH(i, count) _Pragma("omp simd") for (size_t i = 0; i < (count); i++)

#define PAIRS(name, loose, type, expression)                                      \
    static void name(void *to, const void *left, const void *right, size_t count) \
    {                                                                             \
        loose *out = to;                                                          \
        const loose *a = left, *b = right;                                        \
        EACH(i, count)                                                            \
        {                                                                         \
            const type x = a[i], y = b[i];                                        \
            out[i] = (type)(expression);                                          \
        }                                                                         \
    }

#define LONE(name, loose_to, loose_from, type, expression)                      \
    static void name(void *to, const void *from, size_t count, unsigned leaves) \
    {                                                                           \
        loose_to *out = to;                                                     \
        const loose_from *in = from;                                            \
        (void)leaves;                                                           \
        EACH(i, count)                                                          \
        {                                                                       \
            const type x = in[i];                                               \
            out[i] = expression;                                                \
        }                                                                       \
    }

/* ---- integers: sums and products wrap, so signed ones are computed as unsigned ---- */

#define WRAPPING(bits)                                               \
    PAIRS(sum_u##bits, loose_u##bits, uint##bits##_t, 0u + x + y)    \
    PAIRS(prod_u##bits, loose_u##bits, uint##bits##_t, 1u * x * y)   \
    PAIRS(min_i##bits, loose_i##bits, int##bits##_t, x < y ? x : y)  \
    PAIRS(max_i##bits, loose_i##bits, int##bits##_t, x > y ? x : y)  \
    PAIRS(min_u##bits, loose_u##bits, uint##bits##_t, x < y ? x : y) \
    PAIRS(max_u##bits, loose_u##bits, uint##bits##_t, x > y ? x : y)
WRAPPING(8)
WRAPPING(16)
WRAPPING(32)
WRAPPING(64)

/* Vectors have no division of integers. A quotient of floats that are wide enough is never rounded
 * up to the next integer: it is at least 1/leaves below that, and an ulp is less. */
#define AVERAGE(name, loose, type, wide) \
    LONE(average_##name, loose, loose, type, (type)((wide)x / (wide)leaves))
AVERAGE(i8, loose_i8, int8_t, float)
AVERAGE(u8, loose_u8, uint8_t, float)
AVERAGE(i16, loose_i16, int16_t, float)
AVERAGE(u16, loose_u16, uint16_t, float)
AVERAGE(i32, loose_i32, int32_t, double)
AVERAGE(u32, loose_u32, uint32_t, double)
LONE(average_i64, loose_i64, loose_i64, int64_t, x / (int64_t)leaves)
LONE(average_u64, loose_u64, loose_u64, uint64_t, x / leaves)

/* ---- f32 and f64 ---- */

static inline uint64_t bits_of_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline double f64_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline double canonical_f64(double value)
{
    return value == value ? value : __builtin_nan("");
}

/* Zeros are equal, whatever their signs: then `x < y ? x : y` and its mirror are one zero each, and
 * the sign is in either (min) or in both (max). Else the two are the same. */
#define LESSER(of, x, y) (of((x) < (y) ? (x) : (y)) | of((y) < (x) ? (y) : (x)))
#define GREATER(of, x, y) (of((x) > (y) ? (x) : (y)) & of((y) > (x) ? (y) : (x)))

static inline float min_of_f32(float x, float y)
{
    return __builtin_isunordered(x, y) ? __builtin_nanf("")
                                       : f32_of_bits(LESSER(bits_of_f32, x, y));
}

static inline float max_of_f32(float x, float y)
{
    return __builtin_isunordered(x, y) ? __builtin_nanf("")
                                       : f32_of_bits(GREATER(bits_of_f32, x, y));
}

static inline double min_of_f64(double x, double y)
{
    return __builtin_isunordered(x, y) ? __builtin_nan("") : f64_of_bits(LESSER(bits_of_f64, x, y));
}

static inline double max_of_f64(double x, double y)
{
    return __builtin_isunordered(x, y) ? __builtin_nan("")
                                       : f64_of_bits(GREATER(bits_of_f64, x, y));
}

PAIRS(sum_f32, loose_f32, float, canonical_f32(x + y))
PAIRS(prod_f32, loose_f32, float, canonical_f32((x * y)))
PAIRS(min_f32, loose_f32, float, min_of_f32(x, y))
PAIRS(max_f32, loose_f32, float, max_of_f32(x, y))
PAIRS(sum_f64, loose_f64, double, canonical_f64(x + y))
PAIRS(prod_f64, loose_f64, double, canonical_f64((x * y)))
PAIRS(min_f64, loose_f64, double, min_of_f64(x, y))
PAIRS(max_f64, loose_f64, double, max_of_f64(x, y))

/* A product with the inverse of a power of two has the bits of the quotient, and takes a quarter of
 * the time. */
static inline bool has_exact_inverse(unsigned leaves)
{
    return (leaves & (leaves - 1)) == 0;
}

#define AVERAGE_FLOATS(name, loose_to, loose_from, type, narrow)                          \
    static void average_##name(void *to, const void *from, size_t count, unsigned leaves) \
    {                                                                                     \
        loose_to *out = to;                                                               \
        const loose_from *in = from;                                                      \
        const type divisor = (type)leaves, inverse = 1 / divisor;                         \
        if (has_exact_inverse(leaves)) {                                                  \
            EACH(i, count)                                                                \
            out[i] = narrow(in[i] * inverse);                                             \
            return;                                                                       \
        }                                                                                 \
        EACH(i, count)                                                                    \
        out[i] = narrow(in[i] / divisor);                                                 \
    }
AVERAGE_FLOATS(f32, loose_f32, loose_f32, float, canonical_f32)
AVERAGE_FLOATS(f64, loose_f64, loose_f64, double, canonical_f64)

/* ---- 16-bit floats: least and greatest, without widening ---- */

/* In the order of these keys negative numbers come first, and -0 before +0. Its own inverse. */
static inline int16_t half_key(int16_t bits)
{
    return (int16_t)(bits ^ (bits >> 15 & 0x7fff));
}

#define HALF_ORDER(name, relation, infinity, nan)                \
    PAIRS(name, loose_i16, int16_t,                              \
          (x & 0x7fff) > (infinity) || (y & 0x7fff) > (infinity) \
              ? (nan)                                            \
              : half_key(half_key(x) relation half_key(y) ? half_key(x) : half_key(y)))
HALF_ORDER(min_f16, <, 0x7c00, 0x7e00)
HALF_ORDER(max_f16, >, 0x7c00, 0x7e00)
HALF_ORDER(min_bf16, <, 0x7f80, 0x7fc0)
HALF_ORDER(max_bf16, >, 0x7f80, 0x7fc0)

/* ---- bf16: two at a time, the halves of 32 bits, neither of which is moved ---- */

#define BF16_PAIRS(name, operator)                                                            \
    PAIRS(name##_halves, loose_u32, uint32_t,                                                 \
          bf16_above(f32_of_bits(x << 16) operator f32_of_bits(y << 16)) >> 16 |              \
              (bf16_above(f32_of_bits(x & 0xffff0000) operator f32_of_bits(y & 0xffff0000)) & \
               0xffff0000))                                                                   \
    static void name(void *to, const void *left, const void *right, size_t count)             \
    {                                                                                         \
        loose_u16 *out = to;                                                                  \
        const loose_u16 *a = left, *b = right;                                                \
        name##_halves(to, left, right, count / 2);                                            \
        if (count % 2)                                                                        \
            out[count - 1] =                                                                  \
                bf16_from_f32(bf16_to_f32(a[count - 1]) operator bf16_to_f32(b[count - 1]));  \
    }                                                                                         \
    static void name##_wide(void *to, const void *left, const void *right, size_t count)      \
    {                                                                                         \
        loose_f32 *out = to;                                                                  \
        const loose_u16 *a = left, *b = right;                                                \
        EACH(i, count)                                                                        \
        out[i] = bf16_to_f32(a[i]) operator bf16_to_f32(b[i]);                                \
    }
BF16_PAIRS(sum_bf16, +)
BF16_PAIRS(prod_bf16, *)
LONE(widen_bf16, loose_f32, loose_u16, uint16_t, bf16_to_f32(x))
LONE(narrow_bf16, loose_u16, loose_f32, float, bf16_from_f32(x))
AVERAGE_FLOATS(bf16, loose_u16, loose_f32, float, bf16_from_f32)

/* ---- bf16 in blocks: all lower halves are in front of all upper ones, and the last of an odd
 * number comes last. So nothing moves from lane to lane on the way into blocks and out. ---- */

#define BF16_SPLIT_PAIRS(name, operator)                                                       \
    static void name(void *to, const void *left, const void *right, size_t count)              \
    {                                                                                          \
        const size_t twos = count / 2;                                                         \
        loose_f32 *lower = to, *upper = lower + twos;                                          \
        const loose_u32 *a = left, *b = right;                                                 \
        EACH(i, twos)                                                                          \
        {                                                                                      \
            const uint32_t x = a[i], y = b[i];                                                 \
            lower[i] = f32_of_bits(x << 16) operator f32_of_bits(y << 16);                     \
            upper[i] = f32_of_bits(x & 0xffff0000) operator f32_of_bits(y & 0xffff0000);       \
        }                                                                                      \
        if (count % 2)                                                                         \
            upper[twos] = bf16_to_f32(((const loose_u16 *)a)[count - 1]) operator bf16_to_f32( \
                ((const loose_u16 *)b)[count - 1]);                                            \
    }
BF16_SPLIT_PAIRS(sum_bf16_split, +)
BF16_SPLIT_PAIRS(prod_bf16_split, *)

static void split_bf16(void *to, const void *from, size_t count, unsigned leaves)
{
    const size_t twos = count / 2;
    loose_f32 *lower = to, *upper = lower + twos;
    const loose_u32 *in = from;
    (void)leaves;
    EACH(i, twos)
    {
        lower[i] = f32_of_bits(in[i] << 16);
        upper[i] = f32_of_bits(in[i] & 0xffff0000);
    }
    if (count % 2)
        upper[twos] = bf16_to_f32(((const loose_u16 *)in)[count - 1]);
}

#define BF16_MERGE(name, expression)                                            \
    static void name(void *to, const void *from, size_t count, unsigned leaves) \
    {                                                                           \
        const size_t twos = count / 2;                                          \
        const loose_f32 *lower = from, *upper = lower + twos;                   \
        loose_u32 *out = to;                                                    \
        const float divisor = (float)leaves, inverse = 1 / divisor;             \
        (void)inverse;                                                          \
        EACH(i, twos)                                                           \
        {                                                                       \
            float x = lower[i];                                                 \
            const uint32_t below = bf16_above(expression) >> 16;                \
            x = upper[i];                                                       \
            out[i] = below | (bf16_above(expression) & 0xffff0000);             \
        }                                                                       \
        if (count % 2) {                                                        \
            const float x = upper[twos];                                        \
            ((loose_u16 *)out)[count - 1] = bf16_from_f32(expression);          \
        }                                                                       \
    }
BF16_MERGE(merge_bf16, x)
BF16_MERGE(merge_bf16_divided, x / divisor)
BF16_MERGE(merge_bf16_scaled, (x * inverse))

static void merge_bf16_average(void *to, const void *from, size_t count, unsigned leaves)
{
    if (has_exact_inverse(leaves))
        merge_bf16_scaled(to, from, count, leaves);
    else
        merge_bf16_divided(to, from, count, leaves);
}

/* ---- f16 ---- */

#define F16_PAIRS(name, operator)                                                           \
    static void name(void *to, const void *left, const void *right, size_t count)           \
    {                                                                                       \
        loose_u16 *out = to;                                                                \
        const loose_u16 *a = left, *b = right;                                              \
        size_t i = 0;                                                                       \
        for (; count - i >= F16_LANES; i += F16_LANES)                                      \
            f16_lanes_store(out + i, f16_lanes_load(a + i) operator f16_lanes_load(b + i)); \
        for (; i < count; i++)                                                              \
            out[i] = f16_from_f32(f16_to_f32(a[i]) operator f16_to_f32(b[i]));              \
    }                                                                                       \
    static void name##_wide(void *to, const void *left, const void *right, size_t count)    \
    {                                                                                       \
        loose_f32 *out = to;                                                                \
        const loose_u16 *a = left, *b = right;                                              \
        size_t i = 0;                                                                       \
        for (; count - i >= F16_LANES; i += F16_LANES) {                                    \
            const f16_lanes folded = f16_lanes_load(a + i) operator f16_lanes_load(b + i);  \
            memcpy(out + i, &folded, sizeof(folded));                                       \
        }                                                                                   \
        for (; i < count; i++)                                                              \
            out[i] = f16_to_f32(a[i]) operator f16_to_f32(b[i]);                            \
    }
F16_PAIRS(sum_f16, +)
F16_PAIRS(prod_f16, *)

static void widen_f16(void *to, const void *from, size_t count, unsigned leaves)
{
    loose_f32 *out = to;
    const loose_u16 *in = from;
    size_t i = 0;
    (void)leaves;
    for (; count - i >= F16_LANES; i += F16_LANES) {
        const f16_lanes wide = f16_lanes_load(in + i);
        memcpy(out + i, &wide, sizeof(wide));
    }
    for (; i < count; i++)
        out[i] = f16_to_f32(in[i]);
}

static void average_f16(void *to, const void *from, size_t count, unsigned leaves)
{
    loose_u16 *out = to;
    const loose_f32 *in = from;
    const float divisor = (float)leaves, inverse = 1 / divisor;
    const bool is_exact = has_exact_inverse(leaves);
    size_t i = 0;
    for (; count - i >= F16_LANES; i += F16_LANES) {
        f16_lanes wide;
        memcpy(&wide, in + i, sizeof(wide));
        f16_lanes_store(out + i, is_exact ? wide * inverse : wide / divisor);
    }
    for (; i < count; i++)
        out[i] = f16_from_f32(in[i] / divisor);
}

static void narrow_f16(void *to, const void *from, size_t count, unsigned leaves)
{
    loose_u16 *out = to;
    const loose_f32 *in = from;
    size_t i = 0;
    (void)leaves;
    for (; count - i >= F16_LANES; i += F16_LANES) {
        f16_lanes wide;
        memcpy(&wide, in + i, sizeof(wide));
        f16_lanes_store(out + i, wide);
    }
    for (; i < count; i++)
        out[i] = f16_from_f32(in[i]);
}

#define ROW(sum_prod, min_max)                                            \
    {                                                                     \
        [SW_COLL_SUM] = sum_##sum_prod, [SW_COLL_PROD] = prod_##sum_prod, \
        [SW_COLL_MIN] = min_##min_max, [SW_COLL_MAX] = max_##min_max,     \
    }
const struct coll_loops COLL_LOOPS = {
    .name = COLL_LOOPS_NAME,
    .pairs =
        {
            [SW_COLL_I8] = ROW(u8, i8),
            [SW_COLL_U8] = ROW(u8, u8),
            [SW_COLL_I16] = ROW(u16, i16),
            [SW_COLL_U16] = ROW(u16, u16),
            [SW_COLL_I32] = ROW(u32, i32),
            [SW_COLL_U32] = ROW(u32, u32),
            [SW_COLL_I64] = ROW(u64, i64),
            [SW_COLL_U64] = ROW(u64, u64),
            [SW_COLL_F16] = ROW(f16, f16),
            [SW_COLL_BF16] = ROW(bf16, bf16),
            [SW_COLL_F32] = ROW(f32, f32),
            [SW_COLL_F64] = ROW(f64, f64),
        },
    .average =
        {
            [SW_COLL_I8] = average_i8,
            [SW_COLL_U8] = average_u8,
            [SW_COLL_I16] = average_i16,
            [SW_COLL_U16] = average_u16,
            [SW_COLL_I32] = average_i32,
            [SW_COLL_U32] = average_u32,
            [SW_COLL_I64] = average_i64,
            [SW_COLL_U64] = average_u64,
            [SW_COLL_F32] = average_f32,
            [SW_COLL_F64] = average_f64,
        },
    .in_order =
        {
            [SW_COLL_F16] = {{sum_f16_wide, prod_f16_wide}, widen_f16, narrow_f16, average_f16},
            [SW_COLL_BF16] =
                {{sum_bf16_wide, prod_bf16_wide}, widen_bf16, narrow_bf16, average_bf16},
        },
    .in_blocks =
        {
            [SW_COLL_F16] = {{sum_f16_wide, prod_f16_wide}, widen_f16, narrow_f16, average_f16},
            [SW_COLL_BF16] =
                {{sum_bf16_split, prod_bf16_split}, split_bf16, merge_bf16, merge_bf16_average},
        },
};
