/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lock on what a backend serves (common/served.h). A backend that takes the place of another
 * one and serves the same file shares its claim, since both are open for a moment.
 */
#ifndef SW_MOVERS_NVME_CLAIM_H
#define SW_MOVERS_NVME_CLAIM_H

#include <stddef.h>

struct nvt_backend_setup;
struct nvt_claim;

/* Returns 0, or a negative errno with `error` saying who serves it and what helps. */
int nvt_claim_take(const struct nvt_backend_setup *setup, struct nvt_claim **out, char *error,
                   size_t error_size);
void nvt_claim_release(struct nvt_claim *claim); /* NULL: nothing */

#endif
