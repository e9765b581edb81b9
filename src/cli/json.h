/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes JSON values (RFC 8259), where users want them. */
#ifndef SW_CLI_JSON_H
#define SW_CLI_JSON_H

#include <argp.h>
#include <stdbool.h>
#include <stdio.h>

/* A quoted, escaped string. Bytes that are not UTF-8 are passed on as they are. */
void sw_json_string(FILE *out, const char *text);
/* "name": "text" */
void sw_json_member(FILE *out, const char *name, const char *text);

/* A row of options, as the movers have it; --json is the older spelling. */
#define SW_OPTION_FORMAT                                       \
    {                                                          \
        "output-format", 'o', "FORMAT", 0, "normal or json", 0 \
    }
/* Its value: whether JSON is wanted. Another word ends the program. */
bool sw_take_format(struct argp_state *state, const char *value);

#endif
