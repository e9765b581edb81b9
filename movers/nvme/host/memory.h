/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that the controller may read and write. */
#ifndef SW_MOVERS_NVME_HOST_MEMORY_H
#define SW_MOVERS_NVME_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "sidewire/nvme.h"

enum { NVH_KEYED_MAX = 0xffffff }; /* a keyed descriptor has 24 bits of length */

struct sw_nvme_mem {
    struct sw_nvme_controller *controller;
    struct ibv_mr *mr;
    uint8_t *data;
    size_t bytes;
    bool is_ours;
};

#endif
