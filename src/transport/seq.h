/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A PSN counted on beyond its 24 bits. The machines keep 32 bits, of which the lower 24 are the
 * PSN, so that a message of 2^23 packets and its neighbours still compare; the wire sees the lower
 * bits.
 */
#ifndef SW_TRANSPORT_SEQ_H
#define SW_TRANSPORT_SEQ_H

#include <stdint.h>

#include "wire/psn.h"

/* How far `to` lies after `from`; negative if before. */
static inline int32_t sw_seq_distance(uint32_t from, uint32_t to)
{
    return (int32_t)(to - from);
}

static inline bool sw_seq_is_before(uint32_t seq, uint32_t other)
{
    return sw_seq_distance(seq, other) > 0;
}

static inline uint32_t sw_seq_max(uint32_t a, uint32_t b)
{
    return sw_seq_is_before(a, b) ? b : a;
}

static inline uint32_t sw_seq_min(uint32_t a, uint32_t b)
{
    return sw_seq_is_before(a, b) ? a : b;
}

static inline uint32_t sw_seq_psn(uint32_t seq)
{
    return seq & SW_PSN_MASK;
}

/* The number nearest to `near` that has this PSN. */
static inline uint32_t sw_seq_of(uint32_t near, uint32_t psn)
{
    return near + (uint32_t)sw_psn_distance(near & SW_PSN_MASK, psn);
}

#endif
