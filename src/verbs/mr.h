/* SPDX-License-Identifier: BSD-2-Clause */
/* Registration, for all the verbs that end in it. */
#ifndef SW_VERBS_MR_H
#define SW_VERBS_MR_H

#include "verbs/object.h"

/* Registers in a PD of ours; NULL with errno. */
struct ibv_mr *sw_verbs_reg(struct ibv_pd *pd, void *addr, size_t len_bytes, uint64_t iova,
                            unsigned int access);

/* A region of device memory is deregistered. */
void sw_dm_region_gone(struct sw_dm_memory *memory);

#endif
