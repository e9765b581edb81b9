/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moving the program's bytes. A NIC does that outside the program's memory model: what orders it
 * are completions, which a program may as well see by polling the last byte. So ThreadSanitizer is
 * not shown these accesses (its reports would be about the program's protocol, which it cannot
 * know); AddressSanitizer is.
 */
#ifndef SW_BASE_PAYLOAD_H
#define SW_BASE_PAYLOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/cache_ahead.h"

#if defined(__SANITIZE_THREAD__)
#define SW_UNSEEN __attribute__((no_sanitize("thread"), noinline, unused))
static SW_UNSEEN void sw_payload_copy(void *to, const void *from, uint64_t len_bytes)
{
    /* memcpy() is watched, and so would be what a loop is compiled to. From the end where the two
     * overlap, as below. */
    const bool backwards = (uintptr_t)to - (uintptr_t)from < len_bytes;
    for (uint64_t i = 0; i < len_bytes; i++) {
        const uint64_t at = backwards ? len_bytes - 1 - i : i;
        ((volatile uint8_t *)to)[at] = ((const volatile uint8_t *)from)[at];
    }
}
#else
#define SW_UNSEEN
static inline void sw_payload_copy(void *to, const void *from, uint64_t len_bytes)
{
    memmove(to, from, len_bytes); /* a program connected with itself may let them overlap */
}
#endif

/* The same for a caller that goes on behind it, in memory that another core has read last. It asks
 * for the lines there while it writes these. The two do not overlap. */
static inline void sw_payload_copy_ahead(void *to_start, const void *from_start, uint64_t len_bytes)
{
#if defined(__SANITIZE_THREAD__)
    sw_payload_copy(to_start, from_start, len_bytes);
#else
    enum { LINE = 64, AHEAD = 4096 };
    uint8_t *to = to_start;
    const uint8_t *from = from_start;
    for (; len_bytes >= LINE; to += LINE, from += LINE, len_bytes -= LINE) {
        sw_cache_own_soon(to + AHEAD);
        memcpy(to, from, LINE); /* inline, where the length is known */
    }
    memcpy(to, from, len_bytes);
#endif
}

#endif
