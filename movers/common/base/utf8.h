/* SPDX-License-Identifier: BSD-2-Clause */
/* Texts that come from outside, before they are printed or become JSON. */
#ifndef SW_MOVERS_UTF8_H
#define SW_MOVERS_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many bytes the character of a text that ends with a NUL has (RFC 3629 s4); 0: it is none. */
static inline size_t mover_utf8_bytes(const uint8_t *at)
{
    if (at[0] < 0x80)
        return 1;
    const size_t bytes = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((at[i] & 0xc0) != 0x80) /* so is a NUL: nothing behind it is looked at */
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
        bytes = mover_utf8_bytes(at);
        const bool is_c1 = bytes == 2 && at[0] == 0xc2 && at[1] < 0xa0;
        if (!bytes || *at < 0x20 || *at == 0x7f || is_c1)
            return false;
    }
    return true;
}

#endif
