/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_MINMAX_H
#define SW_MOVERS_MINMAX_H

#include <stdint.h>

static inline uint32_t mover_min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint64_t mover_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t mover_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
