/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/json.h"

#include <string.h>

void sw_json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else if (*at < 0x20)
            fprintf(out, "\\u%04x", *at);
        else
            fputc(*at, out);
    }
    fputc('"', out);
}

void sw_json_member(FILE *out, const char *name, const char *text)
{
    sw_json_string(out, name);
    fputs(": ", out);
    sw_json_string(out, text);
}

bool sw_take_format(struct argp_state *state, const char *value)
{
    const bool is_json = !strcmp(value, "json");
    if (!is_json && strcmp(value, "normal") != 0)
        argp_error(state, "the format is normal or json, not '%s'", value);
    return is_json;
}
