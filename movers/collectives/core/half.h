/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 16-bit floats: f16 (IEEE 754 binary16) and bf16, the upper half of an f32. Wider is exact;
 * narrower rounds to nearest even, with subnormals, and what is too large becomes infinity. Every
 * NaN becomes the positive quiet one without a payload.
 *
 * AVX512-BF16 has an instruction for bf16, but it takes subnormals for zeros.
 */
#ifndef SW_COLLECTIVES_HALF_H
#define SW_COLLECTIVES_HALF_H

#include <stdint.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

/* What lies at any address. */
typedef uint16_t loose_u16 __attribute__((aligned(1), may_alias));
typedef float loose_f32 __attribute__((aligned(1), may_alias));

static inline uint32_t bits_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline float canonical_f32(float value)
{
    return value == value ? value : __builtin_nanf("");
}

/* The upper 16 bits are the bf16. */
static inline uint32_t bf16_above(float value)
{
    const uint32_t bits = bits_of_f32(value);
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    return value == value ? rounded : 0x7fc00000;
}

static inline float bf16_to_f32(uint16_t bits)
{
    return f32_of_bits((uint32_t)bits << 16);
}

static inline uint16_t bf16_from_f32(float value)
{
    return (uint16_t)(bf16_above(value) >> 16);
}

#if defined(__F16C__)

static inline float f16_to_f32(uint16_t bits)
{
    return _cvtsh_ss(bits);
}

static inline uint16_t f16_from_f32(float value)
{
    return _cvtss_sh(canonical_f32(value), _MM_FROUND_TO_NEAREST_INT);
}

#else

/* The exponent's bias is 15 in f16 and 127 in f32. A product with a power of two is exact, and
 * makes a number of a subnormal. */
static inline float f16_to_f32(uint16_t bits)
{
    const uint32_t magnitude = bits & 0x7fff, sign = (uint32_t)(bits & 0x8000) << 16;
    const uint32_t scaled = bits_of_f32(f32_of_bits(magnitude << 13) * 0x1p112f);
    return f32_of_bits(sign | (magnitude < 0x7c00 ? scaled : 0x7f800000 | magnitude << 13));
}

static inline uint16_t f16_from_f32(float value)
{
    const uint32_t bits = bits_of_f32(value), magnitude = bits & 0x7fffffff;
    const uint32_t sign = bits >> 16 & 0x8000;
    if (magnitude > 0x7f800000)
        return 0x7e00;
    if (magnitude >= bits_of_f32(65520)) /* half way between the largest f16 and 2^16 */
        return (uint16_t)(sign | 0x7c00);
    /* The sum with 0.5 is rounded where f16's subnormals are: at 2^-24. */
    if (magnitude < bits_of_f32(0x1p-14f))
        return (uint16_t)(sign | (bits_of_f32(f32_of_bits(magnitude) + 0.5f) - bits_of_f32(0.5f)));
    const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - ((127u - 15) << 23)) >> 13);
}

#endif

/* ---- as many f16 as the processor converts at a time, as f32 ---- */

#if defined(__AVX512F__)

enum { F16_LANES = 16 };
typedef __m512 f16_lanes;

static inline f16_lanes f16_lanes_load(const loose_u16 *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

static inline void f16_lanes_store(loose_u16 *to, f16_lanes value)
{
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    value = _mm512_mask_mov_ps(value, is_nan, _mm512_set1_ps(__builtin_nanf("")));
    _mm256_storeu_si256((__m256i *)(void *)to,
                        _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#elif defined(__F16C__)

enum { F16_LANES = 8 };
typedef __m256 f16_lanes;

static inline f16_lanes f16_lanes_load(const loose_u16 *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

static inline void f16_lanes_store(loose_u16 *to, f16_lanes value)
{
    const __m256 is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    value = _mm256_blendv_ps(value, _mm256_set1_ps(__builtin_nanf("")), is_nan);
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

#else

enum { F16_LANES = 1 };
typedef float f16_lanes;

static inline f16_lanes f16_lanes_load(const loose_u16 *from)
{
    return f16_to_f32(*from);
}

static inline void f16_lanes_store(loose_u16 *to, f16_lanes value)
{
    *to = f16_from_f32(value);
}

#endif

#endif
