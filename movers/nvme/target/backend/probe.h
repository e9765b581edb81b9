/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a file's disk answers, before the file is opened by a thread that serves hosts. What may
 * take long is done here: blocks for holes, and writes that the system still has in its cache. A
 * thread of its own does it, and goes on alone where that takes too long.
 */
#ifndef SW_MOVERS_NVME_PROBE_H
#define SW_MOVERS_NVME_PROBE_H

#include <stdbool.h>
#include <stdint.h>

enum { NVT_PROBE_MS = 2000 };

/* `is_mapped`: pages of the system's cache are to be served, as they are anyway where a file system
 * has no O_DIRECT. `is_filled`: and hosts write to what is mapped.
 * Returns 0, -ETIMEDOUT, or the negative errno of what the disk did not take: the system says that
 * once. What else is wrong with the file, opening it tells. */
int nvt_probe(const char *path, bool is_mapped, bool is_filled, uint32_t wait_ms);

#endif
