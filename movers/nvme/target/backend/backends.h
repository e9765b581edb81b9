/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables of the kinds of backends; see backends.c. */
#ifndef SW_MOVERS_NVME_BACKENDS_H
#define SW_MOVERS_NVME_BACKENDS_H

#include "nvme/target/backend/backend.h"

extern const struct nvt_backend_ops nvt_ram, nvt_null, nvt_file, nvt_block, nvt_nvram, nvt_nvme,
    nvt_rbd, nvt_tiered;

/* READ and WRITE of a backend in memory. Data may lie where it belongs: then the NIC moves it.
 * False: there is no page for some of it. */
bool nvt_memory_move(const struct nvt_backend *backend, const struct nvt_io *io);

/* A backend that fails and delays what `inner` would do; closes it, too. 0 or -ENOMEM. */
int nvt_faulty_wrap(struct nvt_backend *inner, uint32_t error_ppm, uint64_t delay_ns,
                    struct nvt_backend **out);
/* Draws: true of `ppm` in a million. */
bool nvt_fault_strikes(uint64_t *draw, uint32_t ppm);

#endif
