/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/in_order.h"

#include "base/payload.h"

/* Below eight bytes: the widest store that the place and the rest allow. */
static uint64_t store_width(const uint8_t *to, uint64_t left)
{
    uint64_t bytes = 4;
    while (bytes > left || (uintptr_t)to % bytes)
        bytes /= 2;
    return bytes;
}

/* Volatile stores stay as they are and where they are. */
static SW_UNSEEN void store_eight(uint8_t *to, const uint8_t *from)
{
    uint64_t word;
    sw_payload_copy(&word, from, sizeof(word));
    *(volatile uint64_t *)(void *)to = word;
}

static SW_UNSEEN void store_narrow(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
    union {
        uint32_t u32;
        uint16_t u16;
        uint8_t bytes[4];
    } word = {0};
    sw_payload_copy(word.bytes, from, bytes);
    switch (bytes) {
    case 4:
        *(volatile uint32_t *)(void *)to = word.u32;
        break;
    case 2:
        *(volatile uint16_t *)(void *)to = word.u16;
        break;
    default:
        *(volatile uint8_t *)to = word.bytes[0];
    }
}

void sw_copy_words(uint8_t *to, const uint8_t *from, uint64_t len_bytes)
{
    while (len_bytes) {
        const bool is_whole = len_bytes >= 8 && !((uintptr_t)to & 7);
        const uint64_t bytes = is_whole ? 8 : store_width(to, len_bytes);
        if (is_whole)
            store_eight(to, from);
        else
            store_narrow(to, from, bytes);
        to += bytes;
        from += bytes;
        len_bytes -= bytes;
    }
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

#include <emmintrin.h>

#define WIDE 16u /* an aligned store of so many bytes is one, or two words of eight in order */
#define LINE 64u

static inline __m128i load_wide(const uint8_t *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

static inline void store_wide(uint8_t *to, __m128i bytes)
{
    *(volatile __m128i *)(void *)to = bytes;
}

static inline void copy_line(uint8_t *to, const uint8_t *from)
{
    const __m128i a = load_wide(from), b = load_wide(from + WIDE), c = load_wide(from + 2 * WIDE),
                  d = load_wide(from + 3 * WIDE);
    store_wide(to, a);
    store_wide(to + WIDE, b);
    store_wide(to + 2 * WIDE, c);
    store_wide(to + 3 * WIDE, d);
}

void sw_copy_in_order(uint8_t *to, const uint8_t *from, uint64_t len_bytes)
{
    if (__builtin_expect((uintptr_t)to - (uintptr_t)from < len_bytes, 0)) {
        sw_payload_copy(to, from, len_bytes);
        return;
    }
    const uint64_t to_aligned = -(uintptr_t)to & (WIDE - 1);
    const uint64_t head = to_aligned < len_bytes ? to_aligned : len_bytes;
    if (head)
        sw_copy_words(to, from, head);
    to += head;
    from += head;
    len_bytes -= head;
    for (; len_bytes >= LINE; to += LINE, from += LINE, len_bytes -= LINE)
        copy_line(to, from);
    for (; len_bytes >= WIDE; to += WIDE, from += WIDE, len_bytes -= WIDE)
        store_wide(to, load_wide(from));
    sw_copy_words(to, from, len_bytes);
}

#else

void sw_copy_in_order(uint8_t *to, const uint8_t *from, uint64_t len_bytes)
{
    if ((uintptr_t)to - (uintptr_t)from < len_bytes)
        sw_payload_copy(to, from, len_bytes);
    else
        sw_copy_words(to, from, len_bytes);
}

#endif
