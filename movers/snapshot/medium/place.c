/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/medium/place.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/text/endpoint.h"
#include "common/text/number.h"

int snap_place_parse(const char *rest, const char *form, char *error, size_t error_bytes,
                     struct snap_place *place)
{
    uint16_t port;
    *place = (struct snap_place){.port = NULL};
    snprintf(place->text, sizeof(place->text), "%s", rest);
    char *slash = strlen(rest) < sizeof(place->text) ? strchr(place->text, '/') : NULL;
    if (slash) {
        *slash = 0;
        place->name = slash + 1;
    }
    if (!slash || !*place->name ||
        !mover_split_endpoint(place->text, &place->address, &place->port)) {
        snprintf(error, error_bytes, "\"%.100s\" does not name a sink: it is written %s", rest,
                 form);
        return -EINVAL;
    }
    if (!place->port || (mover_parse_port(place->port, &port) && port))
        return 0;
    snprintf(error, error_bytes, "\"%.100s\": a port is a number of 1 to 65535", rest);
    return -EINVAL;
}
