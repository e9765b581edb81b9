/* SPDX-License-Identifier: BSD-2-Clause */
/* Which of several paths a request takes. Pure: what is known of the paths goes in. */
#ifndef SW_MOVERS_NVME_HOST_CHOOSE_H
#define SW_MOVERS_NVME_HOST_CHOOSE_H

#include <stdint.h>

#include "sidewire/nvme.h"

enum { NVH_PATHS_MAX = 8, NVH_NO_PATH = -1 };

struct nvh_choice {
    uint8_t ana;        /* enum sw_nvme_ana; 0: the path cannot be used */
    uint32_t in_flight; /* requests of this queue */
    uint32_t distance;  /* from the thread's node to the device's */
};

/* Optimized paths first, then the others that are accessible; among these the policy decides.
 * `turn` is the path of the last choice. Returns the path, or NVH_NO_PATH. */
int nvh_choose(enum sw_nvme_iopolicy policy, const struct nvh_choice *paths, uint32_t count,
               uint32_t *turn);

#endif
