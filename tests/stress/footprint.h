/* SPDX-License-Identifier: BSD-2-Clause */
/* What this process holds, to be compared with what it held before. */
#ifndef SW_TESTS_INTEGRITY_FOOTPRINT_H
#define SW_TESTS_INTEGRITY_FOOTPRINT_H

#include <stdbool.h>
#include <stddef.h>

struct footprint {
    size_t descriptors; /* but for the next ones */
    size_t udp_sockets;
    size_t names;      /* of the abstract namespace, that its sockets have */
    size_t mappings;   /* lines of /proc/self/maps; 0 where a sanitizer has most of them */
    size_t heap_bytes; /* allocated; 0 where a sanitizer has the heap */
};

/* Fails the test where /proc cannot be read. */
void footprint_take(struct footprint *out);
/* Nothing has grown by more than `slack`. */
bool footprint_is_within(const struct footprint *now, const struct footprint *before,
                         const struct footprint *slack);
void footprint_print(const char *when, const struct footprint *footprint);

#endif
