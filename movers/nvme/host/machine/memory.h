/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that the controller may read and write, as requests need to know it. */
#ifndef SW_MOVERS_NVME_HOST_MACHINE_MEMORY_H
#define SW_MOVERS_NVME_HOST_MACHINE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "sidewire/nvme.h"

enum { NVH_KEYED_MAX = 0xffffff }; /* a keyed descriptor has 24 bits of length */

struct sw_nvme_mem {
    struct sw_nvme_controller *controller;
    uint8_t *data;
    size_t bytes;
    uint32_t lkey, rkey; /* for this side's device, and for the controller */
};

#endif
