/* SPDX-License-Identifier: BSD-2-Clause */
/* The smaller and the larger of two numbers, each argument evaluated once. */
#ifndef SW_BASE_MINMAX_H
#define SW_BASE_MINMAX_H

#include <stddef.h>
#include <stdint.h>

static inline uint16_t sw_min_u16(uint16_t a, uint16_t b)
{
    return a < b ? a : b;
}

static inline uint32_t sw_min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint32_t sw_max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static inline uint64_t sw_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t sw_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline size_t sw_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

#endif
