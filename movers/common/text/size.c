/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/text/size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool mover_parse_size(const char *text, uint64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 0);
    unsigned shift = 0;
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
    if (*end || errno || value > UINT64_MAX >> shift)
        return false;
    *out = value << shift;
    return true;
}
