/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_NVME_FENCE_DEVICE_H
#define SW_MOVERS_NVME_FENCE_DEVICE_H

#include "nvme/target/backend/device_key.h"
#include "nvme/target/config/spec.h"

/* The device, with the keys that the spec has. The caller closes its descriptor. Returns 0 or a
 * negative errno. */
int nvt_fence_open_device(const struct nvt_backend_spec *spec, struct nvt_device *device);

#endif
