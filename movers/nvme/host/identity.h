/* SPDX-License-Identifier: BSD-2-Clause */
/* The names and addresses of the host and the controller, checked before any connection. */
#ifndef SW_MOVERS_NVME_HOST_IDENTITY_H
#define SW_MOVERS_NVME_HOST_IDENTITY_H

#include "nvme/host/controller.h"
#include "sidewire/nvme.h"

enum sw_nvme_status nvh_identity(struct nvh_host *host, const struct sw_nvme_options *options,
                                 struct sw_nvme_error *error);

#endif
