/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_NVME_BACKEND_TIER_H
#define SW_MOVERS_NVME_BACKEND_TIER_H

#include <stdbool.h>

#include "nvme/target/backend/backend.h"
#include "nvme/target/tier/tier.h"

/* False: it is another kind of backend. */
bool nvt_tiered_status(const struct nvt_backend *backend, struct nvt_tier_status *status);

#endif
