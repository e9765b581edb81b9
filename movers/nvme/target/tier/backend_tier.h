/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_NVME_BACKEND_TIER_H
#define SW_MOVERS_NVME_BACKEND_TIER_H

#include <stdbool.h>

#include "nvme/target/backend/backend.h"
#include "nvme/target/tier/tier.h"

/* For groups of targets: of struct nvt_backend_ops. */
int nvt_tier_look_at(const struct nvt_backend_setup *setup, struct nvt_backend_look *out,
                     char *error, size_t error_size);
int nvt_tier_await_logs(const struct nvt_backend_setup *setup, char *error, size_t error_size);

/* False: it is another kind of backend. */
bool nvt_tiered_status(const struct nvt_backend *backend, struct nvt_tier_status *status);

#endif
