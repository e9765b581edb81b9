/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names for what was given none, made out of the machine's and the thing's own: a target that
 * starts again is the same to its hosts. The machine's ID itself is never shown.
 */
#ifndef SW_MOVERS_NVME_IDENTITY_H
#define SW_MOVERS_NVME_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#include "nvme/target/config/spec.h"

enum { NVT_MACHINE_ID_BYTES = 64, NVT_SERIAL_BYTES = 21 };

/* The content of /etc/machine-id, else the host's name. */
void nvt_machine_id(char out[NVT_MACHINE_ID_BYTES]);

/* It follows from what holds the data, not from options: a namespace stays the same when it becomes
 * read-only. */
void nvt_default_uuid(const char *machine_id, const char *nqn, uint32_t nsid,
                      const struct nvt_backend_spec *spec, uint8_t uuid[NVT_UUID_BYTES]);
void nvt_default_serial(const char *machine_id, const char *nqn, char serial[NVT_SERIAL_BYTES]);

#endif
