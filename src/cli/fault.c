/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/fault.h"

#include <stdarg.h>
#include <stdio.h>

void sw_fault(const char *mend, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("sidewire: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    if (mend && *mend)
        fprintf(stderr, "  mend: %s\n", mend);
}
