/* SPDX-License-Identifier: BSD-2-Clause */
/* Where copies of a log lie. */
#ifndef SW_MOVERS_NVME_TIER_MEDIUM_H
#define SW_MOVERS_NVME_TIER_MEDIUM_H

#include "nvme/target/tier/tier.h"

/* A file or a device here: memory itself, where its file system is DAX or memory, else by io_uring.
 * It is locked; `is_shared`: beside others that say so, for tests.
 * 0, or a negative errno and why. `name` stays the caller's. */
int nvt_tier_file_open(const char *name, bool is_shared, struct nvt_tier_medium **out, char *error,
                       size_t error_size);
/* A region of a pmem server, "ADDR[:PORT]/REGION", which it waits for, for 2 s. Where that does not
 * answer it goes on trying, and the copy cannot be had until then. */
bool nvt_tier_is_pmem(const char *name);
int nvt_tier_pmem_open(const char *name, struct nvt_tier_medium **out, char *error,
                       size_t error_size);

#endif
