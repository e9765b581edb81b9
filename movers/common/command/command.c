/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/text/size.h"

uint64_t mover_parse_bytes(struct argp_state *state, const char *text)
{
    uint64_t value = 0;
    if (!mover_parse_size(text, &value))
        argp_error(state, "\"%s\" is no number; write 4096, 64K or 1G", text);
    return value;
}

uint32_t mover_parse_count(struct argp_state *state, const char *text)
{
    const uint64_t value = mover_parse_bytes(state, text);
    if (value > UINT32_MAX)
        argp_error(state, "\"%s\" is too many", text);
    return (uint32_t)value;
}

uint64_t mover_parse_seconds_ms(struct argp_state *state, const char *text)
{
    char *end;
    const double seconds = strtod(text, &end);
    if (*end || end == text || !(seconds >= 0 && seconds <= 1e6))
        argp_error(state, "\"%s\" is not a time in seconds", text);
    return (uint64_t)(seconds * 1000);
}

bool mover_parse_format(struct argp_state *state, const char *text)
{
    const bool is_json = !strcmp(text, "json");
    if (!is_json && strcmp(text, "normal"))
        argp_error(state, "\"%s\" is no format; there are normal and json", text);
    return is_json;
}

int mover_fail_as(const char *program, const char *command, const char *format, va_list args)
{
    fprintf(stderr, "sidewire %s %s: ", program, command);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    return 1;
}

void mover_progress_show(uint64_t done, uint64_t total, bool ends)
{
    if (!isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r%3u %%  %llu of %llu MiB%s",
            (unsigned)(total ? (double)done * 100 / (double)total : 100),
            (unsigned long long)(done >> 20), (unsigned long long)(total >> 20), ends ? "\n" : "");
}
