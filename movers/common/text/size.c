/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/text/size.h"

#include <string.h>

#include "common/text/number.h"

bool mover_parse_size(const char *text, uint64_t *out)
{
    const char *end;
    uint64_t value;
    unsigned shift = 0;
    if (!mover_parse_number(text, &value, &end))
        return false;
    if (*end) {
        static const char letters[] = "kmgt";
        const char *letter = strchr(letters, *end | 0x20);
        if (!letter)
            return false;
        end++;
        end += *end == 'i';
        end += *end == 'B';
        shift = 10 * (unsigned)(letter - letters + 1);
    }
    if (*end || value > UINT64_MAX >> shift)
        return false;
    *out = value << shift;
    return true;
}
