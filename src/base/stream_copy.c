/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/stream_copy.h"

#include "base/payload.h"

/* The first page of each 64 KiB may be looked at, and a quarter of these are, by hash: one page in
 * 64. A window of 64 such pages stands for 16 MiB. */
#define GRANULE_SHIFT 16
#define WINDOW 64

bool sw_stream_watch_note(struct sw_stream_watch *watch, const void *to, uint64_t len_bytes)
{
    const uint64_t granule = UINT64_C(1) << GRANULE_SHIFT;
    const uint64_t start = (uint64_t)(uintptr_t)to, end = start + len_bytes;
    for (uint64_t at = (start + granule - 1) & ~(granule - 1); at < end; at += granule) {
        const uint64_t hash = (at >> GRANULE_SHIFT) * UINT64_C(0x9e3779b97f4a7c15);
        if (hash >> 62)
            continue;
        uint32_t *place = &watch->pages[hash >> 55 & (SW_STREAM_PLACES - 1)];
        const uint32_t page = (uint32_t)(at >> GRANULE_SHIFT);
        watch->fresh += *place != page;
        *place = page;
        if (++watch->looked < WINDOW)
            continue;
        /* A stream that goes round in less than the table covers finds two thirds again. */
        const bool is_fresh = watch->fresh * 4 > WINDOW * 3;
        watch->passes_caches = is_fresh && watch->was_fresh;
        watch->was_fresh = is_fresh;
        watch->looked = watch->fresh = 0;
    }
    return watch->passes_caches;
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

#include <emmintrin.h>

#define LINE 64u
#define PAGE 4096u
#define AHEAD_BYTES 256u

static inline void stream_line(uint8_t *to, const uint8_t *from)
{
    _mm_prefetch((const char *)from + AHEAD_BYTES, _MM_HINT_T0);
    const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
    const __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
    const __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));
    _mm_stream_si128((__m128i *)(void *)to, a);
    _mm_stream_si128((__m128i *)(void *)(to + 16), b);
    _mm_stream_si128((__m128i *)(void *)(to + 32), c);
    _mm_stream_si128((__m128i *)(void *)(to + 48), d);
}

/* `pages` pages side by side, a line of each in turn: memory has that many rows open at once. */
static inline void stream_pages(uint8_t *to, const uint8_t *from, uint32_t pages)
{
    for (uint32_t at = 0; at < PAGE; at += LINE)
        for (uint32_t page = 0; page < pages; page++)
            stream_line(to + page * PAGE + at, from + page * PAGE + at);
}

void sw_stream_copy(void *to_start, const void *from_start, uint64_t len_bytes)
{
    uint8_t *to = to_start;
    const uint8_t *from = from_start;
    const uint64_t apart = to > from ? (uint64_t)(to - from) : (uint64_t)(from - to);
    if (apart < len_bytes) {
        sw_payload_copy(to, from, len_bytes);
        return;
    }
    uint64_t head = -(uintptr_t)to & (LINE - 1);
    if (head > len_bytes)
        head = len_bytes;
    sw_payload_copy(to, from, head);
    to += head;
    from += head;
    len_bytes -= head;
    static const uint8_t widths[] = {8, 4, 2, 1};
    for (uint32_t i = 0; i < sizeof(widths); i++) {
        const uint64_t step = (uint64_t)widths[i] * PAGE;
        for (; len_bytes >= step; to += step, from += step, len_bytes -= step)
            stream_pages(to, from, widths[i]);
    }
    for (; len_bytes >= LINE; to += LINE, from += LINE, len_bytes -= LINE)
        stream_line(to, from);
    /* Such stores are not ordered with others, as all stores are here otherwise. */
    _mm_sfence();
    sw_payload_copy(to, from, len_bytes);
}

#else

void sw_stream_copy(void *to, const void *from, uint64_t len_bytes)
{
    sw_payload_copy(to, from, len_bytes);
}

#endif
