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

#endif
