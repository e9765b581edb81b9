/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The backend of a namespace that another target of the group serves: its size, and nothing else.
 * Each operation ends with ANA Inaccessible; hosts go to the other target by that.
 */
#ifndef SW_MOVERS_NVME_STANDBY_H
#define SW_MOVERS_NVME_STANDBY_H

#include <stdint.h>

#include "nvme/target/backend/backend.h"

/* NULL: no memory. Blocks are of 512 or 4096 bytes. */
struct nvt_backend *nvt_standby_open(uint64_t size_bytes, uint32_t block_bytes, bool is_read_only);

#endif
