/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_JSON_TEXT_H
#define SW_MOVERS_JSON_TEXT_H

#include <jansson.h>

/* A name or path as a JSON string, which is UTF-8, as they need not be: then with '?' for each byte
 * that is not ASCII. */
json_t *mover_json_text(const char *text);

#endif
