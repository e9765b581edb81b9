/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_SIZE_H
#define SW_MOVERS_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* A number (number.h) that may end in K, M, G or T, powers of 1024: 64K is 64KB is 64KiB. False: it
 * is none, or needs more than 64 bits. */
bool mover_parse_size(const char *text, uint64_t *out);

#endif
