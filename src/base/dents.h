/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads a directory without allocating: for callers that may be inside an allocator.
 * getdents64(2). */
#ifndef SW_BASE_DENTS_H
#define SW_BASE_DENTS_H

#include <stdint.h>

struct sw_dents {
    int fd; /* of the directory */
    long begin;
    long end;
    _Alignas(uint64_t) char bytes[2048];
};

/* 0 or a negative errno. */
int sw_dents_open(struct sw_dents *dents, const char *path);
/* The same by a descriptor at its beginning, which the caller closes. */
void sw_dents_use(struct sw_dents *dents, int fd);
/* The next name; NULL at the end, or when it cannot be read. */
const char *sw_dents_next(struct sw_dents *dents);
void sw_dents_close(struct sw_dents *dents);

#endif
