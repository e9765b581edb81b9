/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/multipath/choose.h"

#include <stdbool.h>

static bool policy_prefers(enum sw_nvme_iopolicy policy, const struct nvh_choice *path,
                           const struct nvh_choice *best)
{
    switch (policy) {
    case SW_NVME_ROUND_ROBIN:
        return false;
    case SW_NVME_QUEUE_DEPTH:
        return path->in_flight < best->in_flight;
    case SW_NVME_NUMA:
        return path->distance < best->distance;
    }
    return false;
}

/* Looks from the one behind the last choice on, so that equal paths take turns. */
static int choose_among(enum sw_nvme_iopolicy policy, const struct nvh_choice *paths,
                        uint32_t count, uint32_t turn, enum sw_nvme_ana ana)
{
    int best = NVH_NO_PATH;
    for (uint32_t i = 1; i <= count; i++) {
        const uint32_t at = (turn + i) % count;
        if (paths[at].ana == ana && (best < 0 || policy_prefers(policy, &paths[at], &paths[best])))
            best = (int)at;
    }
    return best;
}

int nvh_choose(enum sw_nvme_iopolicy policy, const struct nvh_choice *paths, uint32_t count,
               uint32_t *turn)
{
    if (!count)
        return NVH_NO_PATH;
    int best = choose_among(policy, paths, count, *turn, SW_NVME_ANA_OPTIMIZED);
    if (best < 0)
        best = choose_among(policy, paths, count, *turn, SW_NVME_ANA_NON_OPTIMIZED);
    if (best >= 0)
        *turn = (uint32_t)best;
    return best;
}
