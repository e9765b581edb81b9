/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables of the kinds of backends; see backends.c. */
#ifndef SW_MOVERS_NVME_BACKENDS_H
#define SW_MOVERS_NVME_BACKENDS_H

#include "nvme/target/backend.h"

extern const struct nvt_backend_ops nvt_ram, nvt_null, nvt_file, nvt_block, nvt_nvram;

/* What an operation does to a backend in memory; FLUSH and VERIFY do nothing. Data may lie where
 * it belongs: then the NIC has moved it. */
void nvt_memory_apply(const struct nvt_backend *backend, const struct nvt_io *io);

#endif
