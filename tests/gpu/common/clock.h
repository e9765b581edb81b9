/* SPDX-License-Identifier: BSD-2-Clause */
/* The clock of the processor. */
#ifndef GPU_COMMON_CLOCK_H
#define GPU_COMMON_CLOCK_H

#include <stdint.h>

uint64_t clock_ns(void);
void clock_sleep(uint64_t ns);

#endif
