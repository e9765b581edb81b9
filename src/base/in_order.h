/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies whose bytes are seen in ascending order: who sees one sees all below it. memcpy() promises
 * nothing of that kind, and stores the end first at many lengths. Words of eight bytes, where they
 * are aligned, are seen as a whole. Guaranteed on x86-64, where stores are seen in the order in
 * which they were made.
 */
#ifndef SW_BASE_IN_ORDER_H
#define SW_BASE_IN_ORDER_H

#include <stdbool.h>
#include <stdint.h>

static inline bool sw_in_order_is_possible(void)
{
#if defined(__x86_64__)
    return true;
#else
    return false;
#endif
}

/* In words of eight bytes at most, each aligned and each stored once. */
void sw_copy_words(uint8_t *to, const uint8_t *from, uint64_t len_bytes);
/* Faster. Two that overlap are copied right, but in any order. */
void sw_copy_in_order(uint8_t *to, const uint8_t *from, uint64_t len_bytes);

#endif
