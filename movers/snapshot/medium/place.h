/* SPDX-License-Identifier: BSD-2-Clause */
/* "ADDR[:PORT]/NAME", as users name what lies on another host. */
#ifndef SW_SNAPSHOT_PLACE_H
#define SW_SNAPSHOT_PLACE_H

#include <stddef.h>

enum { SNAP_PLACE_BYTES = 512 };

struct snap_place {
    char text[SNAP_PLACE_BYTES]; /* what the others point into */
    const char *address, *port;  /* port NULL: there is none */
    char *name;                  /* what follows the first '/'; never empty */
};

/* 0, or -EINVAL and a sentence. `form` is how it should look: "pmem:ADDR[:PORT]/REGION". */
int snap_place_parse(const char *rest, const char *form, char *error, size_t error_bytes,
                     struct snap_place *place);

#endif
