/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packet sequence numbers: 24 bits that wrap. Which of two comes first has an answer as long as
 * they are less than half the circle apart (IBTA Vol1 9.7.2). The MSN counts in the same way.
 */
#ifndef SW_WIRE_PSN_H
#define SW_WIRE_PSN_H

#include <stdbool.h>
#include <stdint.h>

#define SW_PSN_BITS 24
#define SW_PSN_MASK 0xffffffu
#define SW_PSN_WINDOW 0x800000u /* half the circle */

static inline uint32_t sw_psn_add(uint32_t psn, uint32_t count)
{
    return (psn + count) & SW_PSN_MASK;
}

/* How far `to` lies after `from`: negative if it lies before it, [-2^23, 2^23). */
static inline int32_t sw_psn_distance(uint32_t from, uint32_t to)
{
    return (int32_t)((to - from) << (32 - SW_PSN_BITS)) >> (32 - SW_PSN_BITS);
}

static inline bool sw_psn_is_before(uint32_t psn, uint32_t other)
{
    return sw_psn_distance(psn, other) > 0;
}

/* Whether a PSN is one of `count` that begin with `first`; count <= 2^24. */
static inline bool sw_psn_is_within(uint32_t psn, uint32_t first, uint32_t count)
{
    return ((psn - first) & SW_PSN_MASK) < count;
}

#endif
