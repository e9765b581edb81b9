/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers that look random and follow from others: the finalizer of SplitMix64 (Steele, Lea, Flood,
 * OOPSLA 2014), of which each output bit depends on all input bits. */
#ifndef SW_BASE_MIX_H
#define SW_BASE_MIX_H

#include <stdint.h>

#define SW_MIX_STEP 0x9e3779b97f4a7c15ull /* between the inputs of a sequence */

static inline uint64_t sw_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

#endif
