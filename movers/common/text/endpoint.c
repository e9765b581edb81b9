/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/text/endpoint.h"

#include <string.h>

/* At the colon before the port, or NULL. */
static char *find_port_colon(char *text)
{
    char *colon = strchr(text, ':');
    return colon && !strchr(colon + 1, ':') ? colon : NULL;
}

bool mover_split_endpoint(char *text, const char **address, const char **port)
{
    char *colon;
    *address = text;
    if (*text == '[') {
        char *end = strchr(text, ']');
        if (!end || (end[1] && end[1] != ':'))
            return false;
        *address = text + 1;
        *end = '\0';
        colon = end[1] ? end + 1 : NULL;
    } else {
        colon = find_port_colon(text);
    }
    if (colon) {
        *colon = '\0';
        *port = colon + 1;
    }
    return **address;
}
