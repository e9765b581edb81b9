/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lock on what a backend serves (common/serve/served.h). Backends of one file share it, where
 * all but the newest of them are leaving: they are about to be replaced or removed, or have been
 * removed and still have requests under way.
 */
#ifndef SW_MOVERS_NVME_CLAIM_H
#define SW_MOVERS_NVME_CLAIM_H

#include <stdbool.h>
#include <stddef.h>

struct nvt_backend_setup;
struct nvt_claim; /* of one backend; NULL of one that has no path */

/* Returns 0, or a negative errno with `error` saying who serves it and what helps. */
int nvt_claim_take(const struct nvt_backend_setup *setup, struct nvt_claim **out, char *error,
                   size_t error_size);
void nvt_claim_release(struct nvt_claim *claim);
/* Its backend is leaving. */
void nvt_claim_leave(struct nvt_claim *claim);
/* It is not, after all. False: another one has taken the file meanwhile. */
bool nvt_claim_stay(struct nvt_claim *claim);

#endif
