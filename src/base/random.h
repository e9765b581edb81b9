/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers that nobody can foresee. */
#ifndef SW_BASE_RANDOM_H
#define SW_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* From the kernel. Where a sandbox refuses that, from the 16 random bytes that it has given to the
 * process at its start, the clock, and a count. Never blocks. */
void sw_random_fill(void *out, size_t len_bytes);
uint64_t sw_random64(void);

#endif
