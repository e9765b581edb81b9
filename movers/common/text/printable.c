/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/text/printable.h"

#include <stdbool.h>
#include <stdint.h>

void mover_make_printable(char *text)
{
    for (uint8_t *at = (uint8_t *)text; *at; at++) {
        const bool is_c1 = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0; /* U+0080 to U+009F */
        if (*at < ' ' || *at == 0x7f)
            *at = '?';
        else if (is_c1)
            at[0] = at[1] = '?';
    }
}
