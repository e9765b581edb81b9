/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/command.h"

#include <stdio.h>
#include <stdlib.h>

uint64_t mover_parse_seconds_ms(struct argp_state *state, const char *text)
{
    char *end;
    const double seconds = strtod(text, &end);
    if (*end || end == text || !(seconds >= 0 && seconds <= 1e6))
        argp_error(state, "\"%s\" is not a time in seconds", text);
    return (uint64_t)(seconds * 1000);
}

int mover_fail_as(const char *program, const char *command, const char *format, va_list args)
{
    fprintf(stderr, "sidewire %s %s: ", program, command);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    return 1;
}
