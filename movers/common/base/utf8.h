/* SPDX-License-Identifier: BSD-2-Clause */
/* Texts that come from outside, before they are printed or become JSON. */
#ifndef SW_MOVERS_UTF8_H
#define SW_MOVERS_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MOVER_UTF8_BYTES_MAX = 4 };

/* How many bytes the character at `at` has (RFC 3629 s4), of the `left` that are there, 1 or more;
 * 0: it is none. A text that ends with a NUL may be said to have MOVER_UTF8_BYTES_MAX left: nothing
 * behind the NUL is looked at. */
static inline size_t mover_utf8_bytes(const uint8_t *at, size_t left)
{
    if (at[0] < 0x80)
        return 1;
    const size_t bytes = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4 || bytes > left)
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    const bool is_odd = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
                        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f);
    return is_odd ? 0 : bytes;
}

/* UTF-8 without control characters, U+0080 to U+009F either: nothing that a terminal obeys. */
static inline bool mover_text_is_fit(const char *text)
{
    const uint8_t *at = (const uint8_t *)text;
    size_t bytes;
    for (; *at; at += bytes) {
        bytes = mover_utf8_bytes(at, MOVER_UTF8_BYTES_MAX);
        const bool is_c1 = bytes == 2 && at[0] == 0xc2 && at[1] < 0xa0;
        if (!bytes || *at < 0x20 || *at == 0x7f || is_c1)
            return false;
    }
    return true;
}

#endif
