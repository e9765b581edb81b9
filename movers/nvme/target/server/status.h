/* SPDX-License-Identifier: BSD-2-Clause */
/* What a target serves, to whom, and how much, as JSON. */
#ifndef SW_MOVERS_NVME_STATUS_H
#define SW_MOVERS_NVME_STATUS_H

#include <jansson.h>

#include "common/serve/metrics.h"
#include "nvme/target/server/serving.h"

/* The caller's. NULL: no memory. */
json_t *nvr_status(const struct nvr_serving *serving);
/* The names of its numbers. */
extern const struct mover_metric nvr_metrics[];

#endif
