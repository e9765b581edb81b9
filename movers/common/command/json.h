/* SPDX-License-Identifier: BSD-2-Clause */
/* What -o json prints. docs/vocabulary.md has the keys: a word means one thing in all movers. */
#ifndef SW_MOVERS_JSON_H
#define SW_MOVERS_JSON_H

#include <jansson.h>
#include <stdint.h>

/* Prints and releases it. Returns the exit status: 0, or 1 if it could not. */
int mover_print_json(json_t *json);
void mover_hex(const uint8_t bytes[16], char text[33]);
/* The name of rights to read (1) and to write (2). */
const char *mover_rights_text(uint32_t rights);

#endif
