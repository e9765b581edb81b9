/* SPDX-License-Identifier: BSD-2-Clause */
/* A set of queue pairs by their index, to be walked without looking at all that there may be. */
#ifndef SW_DEVICE_NIC_QP_SET_H
#define SW_DEVICE_NIC_QP_SET_H

#include <stdatomic.h>
#include <stdint.h>

#include "device/rules/pub.h"

struct sw_qp_set {
    _Atomic uint64_t words[SW_MAX_QP / 64];
};

static inline void sw_qp_set_add(struct sw_qp_set *set, uint32_t index)
{
    atomic_fetch_or(&set->words[index / 64], 1ull << index % 64);
}

static inline void sw_qp_set_remove(struct sw_qp_set *set, uint32_t index)
{
    atomic_fetch_and(&set->words[index / 64], ~(1ull << index % 64));
}

/* The first one from `index` on; SW_MAX_QP: there is none. */
static inline uint32_t sw_qp_set_next(const struct sw_qp_set *set, uint32_t index)
{
    for (uint32_t at = index / 64; at < SW_MAX_QP / 64; at++) {
        uint64_t word = atomic_load_explicit(&set->words[at], memory_order_acquire);
        if (at == index / 64)
            word &= ~0ull << index % 64;
        if (word)
            return at * 64 + (uint32_t)__builtin_ctzll(word);
    }
    return SW_MAX_QP;
}

#endif
