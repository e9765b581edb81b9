/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Administration: commands that a thread waits for. Their data goes through memory of the
 * controller, so that whatever happens the caller's memory is its own again on return.
 */
#ifndef SW_MOVERS_NVME_HOST_ADMIN_H
#define SW_MOVERS_NVME_HOST_ADMIN_H

#include <stdint.h>

#include "nvme/wire/fabrics.h"
#include "sidewire/nvme.h"

enum sw_nvme_status nvh_call_wait(struct sw_nvme_controller *controller, const struct nvf_sqe *sqe,
                                  uint64_t deadline_ns, struct sw_nvme_result *result);

#endif
