/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside of memory regions, and the check of local keys, for device/ and links. */
#ifndef SW_DEVICE_MR_IMPL_H
#define SW_DEVICE_MR_IMPL_H

#include "device/context_impl.h"
#include "device/mr.h"
#include "device/nic.h"
#include "device/target.h"

struct sw_segment;

struct sw_mr {
    struct sw_pd *pd;
    uint32_t index;
    uint32_t key;
    int segment_count;
    struct sw_segment *segments[SW_MR_EXTENTS];
};

/* In a forked child: copies every region's entry to the child's tables, without shareable parts. */
void sw_mr_fork_child(const struct sw_pub *parent, struct sw_pub *fresh);

/* Checks one local scatter/gather element; on success *va is where the bytes are in this process.
 */
static inline bool sw_sge_resolve(uint32_t pd, const struct ibv_sge *sge, uint32_t need,
                                  uint8_t **va)
{
    if (sge->lkey >> 8 >= SW_MAX_MR)
        return false;
    const struct sw_pub_mr *mr = &sw_nic.pub->mrs[sw_key_index(sge->lkey)];
    uint64_t word = atomic_load_explicit(&mr->key_word, memory_order_acquire);
    if (__builtin_expect(word == 0 || (uint32_t)word != sge->lkey || mr->pd != pd ||
                             (mr->access & need) != need ||
                             !sw_mr_covers(mr, sge->addr, sge->length),
                         0))
        return false;
    *va = (uint8_t *)(uintptr_t)(mr->va + (sge->addr - mr->iova));
    return true;
}

#endif
