/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/json_text.h"

#include <stdlib.h>
#include <string.h>

json_t *mover_json_text(const char *text)
{
    json_t *json = json_string(text);
    char *shown = json ? NULL : strdup(text);
    for (char *at = shown; at && *at; at++)
        if (*at & 0x80)
            *at = '?';
    if (!json)
        json = json_string(shown ? shown : "?");
    free(shown);
    return json;
}
