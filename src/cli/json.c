/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/json.h"

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
