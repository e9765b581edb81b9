/* SPDX-License-Identifier: BSD-2-Clause */
/* How much memory this process may still take before the system ends it. */
#ifndef SW_MOVERS_NVME_MEMORY_LEFT_H
#define SW_MOVERS_NVME_MEMORY_LEFT_H

#include <stdint.h>

/* Bytes, by /proc/meminfo and the limits of its control groups (cgroup v2). UINT64_MAX: not known.
 */
uint64_t nvt_memory_left(void);

#endif
