/* SPDX-License-Identifier: BSD-2-Clause */
/* The smaller and the larger of two numbers, each argument evaluated once. */
#ifndef SW_BASE_MINMAX_H
#define SW_BASE_MINMAX_H

#include <stdint.h>

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

#endif
