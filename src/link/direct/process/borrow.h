/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions of another process on this host, mapped here so that they can be used as regions of this
 * one: what importing them means. */
#ifndef SW_LINK_DIRECT_PROCESS_BORROW_H
#define SW_LINK_DIRECT_PROCESS_BORROW_H

#include <stdint.h>

struct sw_borrowed {
    uint8_t *bytes; /* the region's first */
    uint64_t len_bytes;
    uint64_t iova;
    uint32_t access; /* IBV_ACCESS_* */
    uint8_t *base;   /* of the mapping */
    uint64_t mapped_bytes;
};

/* Whether the process with that slot has a PD of that number, with a region or a queue pair in it.
 * Waits for the process to answer, up to two seconds. 0 or -EOPNOTSUPP. */
int sw_borrow_pd(uint32_t slot, uint32_t pd);

/* Maps the region at `index` of its table, which must be of that PD. -EINVAL: it is not there, or
 * of another PD; -EOPNOTSUPP: peers cannot map all of it. */
int sw_borrow_region(uint32_t slot, uint32_t pd, uint32_t index, struct sw_borrowed *out);
void sw_borrow_return(const struct sw_borrowed *borrowed);

#endif
