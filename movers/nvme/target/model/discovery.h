/* SPDX-License-Identifier: BSD-2-Clause */
/* The discovery log: the subsystems that a host may use, by each port, and referrals. */
#ifndef SW_MOVERS_NVME_MODEL_DISCOVERY_H
#define SW_MOVERS_NVME_MODEL_DISCOVERY_H

#include <stddef.h>
#include <stdint.h>

struct nvt_referral;
struct nvt_request;
struct nvt_target;

void nvt_discovery_log(struct nvt_request *request, uint64_t offset);
/* Where other targets of the group serve the subsystem that each names. Tells hosts if that has
 * changed. Returns 0 or -ENOMEM. */
int nvt_discovery_set_peers(struct nvt_target *target, const struct nvt_referral *peers,
                            size_t count);

#endif
