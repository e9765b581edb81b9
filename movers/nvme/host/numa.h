/* SPDX-License-Identifier: BSD-2-Clause */
/* How far a device is from the thread that asks. */
#ifndef SW_MOVERS_NVME_HOST_NUMA_H
#define SW_MOVERS_NVME_HOST_NUMA_H

#include <stdint.h>

#include <infiniband/verbs.h>

/* As the kernel has it: 10 is the own node. So it is where nobody knows. */
uint32_t nvh_numa_distance(const struct ibv_context *verbs);

#endif
