/* SPDX-License-Identifier: BSD-2-Clause */
/* The discovery log: the subsystems that a host may use, by each port, and referrals. */
#ifndef SW_MOVERS_NVME_MODEL_DISCOVERY_H
#define SW_MOVERS_NVME_MODEL_DISCOVERY_H

#include <stdint.h>

struct nvt_request;

void nvt_discovery_log(struct nvt_request *request, uint64_t offset);

#endif
