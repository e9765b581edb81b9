/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes JSON values (RFC 8259). */
#ifndef SW_CLI_JSON_H
#define SW_CLI_JSON_H

#include <stdio.h>

/* A quoted, escaped string. Bytes that are not UTF-8 are passed on as they are. */
void sw_json_string(FILE *out, const char *text);
/* "name": "text" */
void sw_json_member(FILE *out, const char *name, const char *text);

#endif
