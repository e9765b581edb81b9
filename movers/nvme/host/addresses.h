/* SPDX-License-Identifier: BSD-2-Clause */
/* The addresses of several paths, as users of fio and nbdkit write them: "ADDR[:PORT],...". */
#ifndef SW_MOVERS_NVME_HOST_ADDRESSES_H
#define SW_MOVERS_NVME_HOST_ADDRESSES_H

#include <stdint.h>

#include "sidewire/nvme.h"

enum { NVH_ADDRESS_BYTES = 300 }; /* a name of 255, a port, brackets */

struct nvh_addresses {
    char texts[SW_NVME_PATHS_MAX][NVH_ADDRESS_BYTES];
    struct sw_nvme_address list[SW_NVME_PATHS_MAX];
    uint32_t count;
};

/* Adds those of a text. Returns why they will not do, or NULL. */
const char *nvh_addresses_add(struct nvh_addresses *addresses, const char *text);
/* Puts them into the options, whose port is that of addresses without one. They stay here. */
void nvh_addresses_use(struct nvh_addresses *addresses, struct sw_nvme_options *options);

#endif
