/* SPDX-License-Identifier: BSD-2-Clause */
/* ibv_advise_mr: no region has anything to update in a device, so to prefetch is to have the pages
 * there. It is advice: it serves any region, also one that is not on-demand. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/memory/mr_impl.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

int sw_mr_prefetch(struct sw_pd *pd, const struct ibv_sge *sge, bool for_write)
{
    const struct sw_pub_mr *mr = &sw_nic.pub->mrs[sw_key_index(sge->lkey)];
    uint64_t word = atomic_load_explicit(&mr->key_word, memory_order_acquire);
    if (word == 0 || (uint32_t)word != sge->lkey)
        return -ENOENT;
    if (mr->kind != SW_PUB_REGION && mr->kind != SW_PUB_NULL)
        return -EINVAL; /* a window */
    if (mr->pd != pd->id || (for_write && !(mr->access & IBV_ACCESS_LOCAL_WRITE)))
        return -EPERM;
    if (!sw_mr_covers(mr, sge->addr, sge->length))
        return -EFAULT;
    uint64_t page = (uint64_t)getpagesize(), va = mr->va + (sge->addr - mr->iova);
    uint64_t start = va / page * page, end = va + sge->length;
    if (sge->length == 0 || mr->kind == SW_PUB_NULL)
        return 0;
    int rc = madvise((void *)(uintptr_t)start, end - start,
                     for_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    if (rc == 0 || errno == EINVAL) /* before Linux 5.14: they come when they are touched */
        return 0;
    return errno == ENOMEM || errno == EFAULT ? -EFAULT : -errno;
}
