/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/text/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* strtoull() finds out by itself, too, but takes "010" for eight. */
static int number_base(const char *text)
{
    return text[0] == '0' && (text[1] | 0x20) == 'x' ? 16 : 10;
}

bool mover_parse_number(const char *text, uint64_t *out, const char **rest)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, number_base(text));
    if (errno)
        return false;
    *out = value;
    *rest = end;
    return true;
}

bool mover_parse_port(const char *text, uint16_t *out)
{
    const char *rest;
    uint64_t port;
    if (text[strspn(text, "0123456789")] || !mover_parse_number(text, &port, &rest) ||
        port > UINT16_MAX)
        return false;
    *out = (uint16_t)port;
    return true;
}
