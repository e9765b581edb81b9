/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory regions and the key table. lkey == rkey; the high 24 bits are the table index, the low 8 a
 * generation. */
#ifndef SW_DEVICE_MR_H
#define SW_DEVICE_MR_H

#include <stdint.h>

struct sw_pd;
struct sw_mr;

/* access: IBV_ACCESS_*. -EINVAL for remote write/atomic without local write, unknown non-optional
 * bits, or a range that wraps; -EFAULT for memory that is not mapped; -EOPNOTSUPP for on-demand and
 * hugetlb-only variants not built. iova is the address peers use. A zero-based region has iova 0.
 * length 0 is allowed. */
int sw_mr_reg(struct sw_pd *pd, void *addr, uint64_t len_bytes, uint64_t iova, unsigned int access,
              struct sw_mr **out);
/* Waits (bounded) for peers' accesses in flight; afterwards none can touch the memory. */
int sw_mr_dereg(struct sw_mr *mr);
uint32_t sw_mr_key(const struct sw_mr *mr);

#endif
