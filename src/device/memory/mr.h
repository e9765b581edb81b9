/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory regions and the key table. lkey == rkey; the high 24 bits are the table index, the low 8 a
 * generation. */
#ifndef SW_DEVICE_MEMORY_MR_H
#define SW_DEVICE_MEMORY_MR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_pd;
struct sw_mr;

/* access: IBV_ACCESS_*. -EINVAL for remote write/atomic without local write, unknown non-optional
 * bits, a range that wraps, or persistence asked of memory that has none; -EFAULT for memory that
 * is not mapped, unless it is on demand (then [0, UINT64_MAX) is the whole address space). iova is
 * the address peers use. A zero-based region has iova 0. length 0 is allowed. */
int sw_mr_reg(struct sw_pd *pd, void *addr, uint64_t len_bytes, uint64_t iova, unsigned int access,
              struct sw_mr **out);
/* A region without memory: as a source it is zeros, as a sink it forgets. -ENOMEM. */
int sw_mr_reg_null(struct sw_pd *pd, struct sw_mr **out);
/* Populates the pages of an on-demand region that an element names. -EINVAL: no region, or not on
 * demand; -EPERM: of another PD, or not for writing; -EFAULT: out of its bounds, or not mapped. */
int sw_mr_prefetch(struct sw_pd *pd, const struct ibv_sge *sge, bool for_write);
/* Waits (bounded) for peers' accesses in flight; afterwards none can touch the memory. -EBUSY:
 * windows are bound to it. */
int sw_mr_dereg(struct sw_mr *mr);
/* What to change of a region; the rest stays. */
struct sw_mr_change {
    struct sw_pd *pd; /* NULL: none */
    bool translation; /* to [addr, addr + len_bytes), known to peers by its address */
    void *addr;
    uint64_t len_bytes;
    bool access_valid;
    unsigned int access;
};
/* Refusals are those of sw_mr_reg() and leave the region as it was. Otherwise accesses that go on
 * are waited for, and those that come meanwhile find no region. Its keys change if and only if its
 * memory does (IBTA Vol1 11.2.10.7). */
int sw_mr_rereg(struct sw_mr *mr, const struct sw_mr_change *change);
uint32_t sw_mr_key(const struct sw_mr *mr);

#endif
