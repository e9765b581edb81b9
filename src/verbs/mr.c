/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains and memory regions. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/memory/mr_impl.h"
#include "verbs/context.h"
#include "verbs/import.h"
#include "verbs/mr.h"
#include "verbs/stock.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

SW_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->alloc_pd(context);
    struct sw_verbs_pd *pd = sw_verbs_object_alloc(context, sizeof(*pd));
    if (!pd)
        return NULL;
    pd->ibv.context = context;
    const int rc = sw_pd_alloc(sw_verbs_context_of(context)->dev, &pd->dev);
    if (rc) {
        sw_verbs_object_free(context, pd);
        return sw_verbs_fail(rc);
    }
    pd->ibv.handle = sw_import_handle(pd->dev->id);
    sw_import_add(SW_IMPORT_PD, pd->ibv.handle, pd);
    return &pd->ibv;
}

SW_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
    if (!sw_verbs_is_ours(pd->context->device))
        return sw_stock()->dealloc_pd(pd);
    const int rc = sw_pd_dealloc(sw_verbs_pd_of(pd)->dev);
    if (rc)
        return -rc;
    sw_import_remove(SW_IMPORT_PD, pd->handle);
    struct ibv_td *td = sw_verbs_pd_of(pd)->parent.td;
    if (td)
        atomic_fetch_sub(&((struct sw_verbs_td *)td)->refs, 1);
    sw_verbs_object_free(pd->context, pd);
    return 0;
}

struct ibv_mr *sw_verbs_reg(struct ibv_pd *pd, void *addr, size_t len_bytes, uint64_t iova,
                            unsigned int access)
{
    struct sw_verbs_mr *mr = sw_verbs_object_alloc(pd->context, sizeof(*mr));
    if (!mr)
        return NULL;
    /* Optional rights may be ignored by a device that has no use for them, and a CPU's stores are
     * ordered as they are. */
    access &= ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
    if (access & IBV_ACCESS_ZERO_BASED)
        iova = 0;
    const int rc = sw_mr_reg(sw_verbs_pd_of(pd)->dev, addr, len_bytes, iova, access, &mr->dev);
    if (rc) {
        sw_verbs_object_free(pd->context, mr);
        return sw_verbs_fail(rc);
    }
    mr->ibv = (struct ibv_mr){
        .context = pd->context,
        .pd = pd,
        .addr = addr,
        .length = len_bytes,
        .handle = sw_import_handle(sw_key_index(sw_mr_key(mr->dev))),
        .lkey = sw_mr_key(mr->dev),
        .rkey = sw_mr_key(mr->dev),
    };
    sw_import_add(SW_IMPORT_MR, mr->ibv.handle, mr);
    return &mr->ibv;
}

struct ibv_mr *sw_verbs_alloc_null_mr(struct ibv_pd *pd)
{
    struct sw_verbs_mr *mr = sw_verbs_object_alloc(pd->context, sizeof(*mr));
    if (!mr)
        return NULL;
    const int rc = sw_mr_reg_null(sw_verbs_pd_of(pd)->dev, &mr->dev);
    if (rc) {
        sw_verbs_object_free(pd->context, mr);
        return sw_verbs_fail(rc);
    }
    mr->is_null = true;
    mr->ibv = (struct ibv_mr){
        .context = pd->context,
        .pd = pd,
        .handle = sw_verbs_next_handle(),
        .lkey = sw_mr_key(mr->dev),
        .rkey = sw_mr_key(mr->dev),
    };
    return &mr->ibv;
}

int sw_verbs_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                       struct ibv_sge *sg_list, uint32_t num_sge)
{
    const bool for_write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    const bool may_fault = advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
    if (may_fault && !for_write && advice != IBV_ADVISE_MR_ADVICE_PREFETCH)
        return ENOTSUP;
    if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH || num_sge == 0)
        return EINVAL;
    for (uint32_t i = 0; i < num_sge; i++) {
        struct ibv_sge sge = sg_list[i];
        if (!may_fault)
            sge.length = 0; /* pages that are there need nothing: only the checks are left */
        const int rc = sw_mr_prefetch(sw_verbs_pd_of(pd)->dev, &sge, for_write);
        if (rc)
            return -rc;
    }
    return 0;
}

SW_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    if (!sw_verbs_is_ours(pd->context->device))
        return sw_stock()->reg_mr(pd, addr, length, access);
    return sw_verbs_reg(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

SW_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
                                         uint64_t iova, int access)
{
    if (!sw_verbs_is_ours(pd->context->device))
        return sw_stock()->reg_mr_iova(pd, addr, length, iova, access);
    return sw_verbs_reg(pd, addr, length, iova, (unsigned int)access);
}

SW_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
                                          uint64_t iova, unsigned int access)
{
    if (!sw_verbs_is_ours(pd->context->device))
        return sw_stock()->reg_mr_iova2(pd, addr, length, iova, access);
    return sw_verbs_reg(pd, addr, length, iova, access);
}

/* A dma-buf is memory of a device; where its exporter lets processors at it, it is used through a
 * mapping of our own. */
static struct ibv_mr *reg_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t len_bytes,
                                 uint64_t iova, int fd, unsigned int access)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = offset % page;
    if (len_bytes == 0 || skip != iova % page || access & IBV_ACCESS_ON_DEMAND ||
        len_bytes > SIZE_MAX - skip)
        return sw_verbs_fail(-EINVAL);
    if (fcntl(fd, F_GETFD) < 0)
        return sw_verbs_fail(-EBADF);
    const int prot = PROT_READ | (access & IBV_ACCESS_LOCAL_WRITE ? PROT_WRITE : 0);
    uint8_t *at = mmap(NULL, len_bytes + skip, prot, MAP_SHARED, fd, (off_t)(offset - skip));
    if (at == MAP_FAILED)
        return sw_verbs_fail(-EOPNOTSUPP);
    const off_t size = lseek(fd, 0, SEEK_END); /* the way to ask a dma-buf for its size */
    if (size >= 0 && (offset > (uint64_t)size || len_bytes > (uint64_t)size - offset)) {
        munmap(at, len_bytes + skip);
        return sw_verbs_fail(-EINVAL);
    }
    struct ibv_mr *ibv = sw_verbs_reg(pd, at + skip, len_bytes, iova, access);
    if (!ibv) {
        const int error = errno;
        munmap(at, len_bytes + skip);
        return sw_verbs_fail(-error);
    }
    struct sw_verbs_mr *mr = (struct sw_verbs_mr *)ibv;
    mr->mapping = at;
    mr->mapping_bytes = len_bytes + skip;
    ibv->addr = NULL;
    return ibv;
}

SW_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                           uint64_t iova, int fd, int access)
{
    if (!sw_verbs_is_ours(pd->context->device))
        return sw_stock()->reg_dmabuf_mr(pd, offset, length, iova, fd, access);
    return reg_dmabuf(pd, offset, length, iova, fd, (unsigned int)access);
}

/* The device refuses before it changes anything, so a failure always leaves the old region valid:
 * ERR_INPUT. */
static int rereg_refused(int error)
{
    errno = error;
    return IBV_REREG_MR_ERR_INPUT;
}

#define REREG_FLAGS \
    (IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS)

SW_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
                           size_t length, int access)
{
    if (!sw_verbs_is_ours(mr->context->device))
        return sw_stock()->rereg_mr(mr, flags, pd, addr, length, access);
    struct sw_verbs_mr *own = (struct sw_verbs_mr *)mr;
    struct sw_mr *dev = own->dev;
    if (!dev || own->dm || own->mapping || own->is_null)
        return rereg_refused(EINVAL); /* not of ibv_reg_mr's making */
    bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
    bool other_pd = flags & IBV_REREG_MR_CHANGE_PD;
    bool other_access = flags & IBV_REREG_MR_CHANGE_ACCESS;
    if (!flags || flags & ~REREG_FLAGS || (moves && (!addr || !length)) ||
        (other_pd && (!pd || pd->context != mr->context)) || (access && !other_access))
        return rereg_refused(EINVAL);
    const struct sw_mr_change change = {
        .pd = other_pd ? sw_verbs_pd_of(pd)->dev : NULL,
        .translation = moves,
        .addr = addr,
        .len_bytes = length,
        .access_valid = other_access,
        .access = (unsigned int)access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE,
    };
    const int rc = sw_mr_rereg(dev, &change);
    if (rc)
        return rereg_refused(-rc);
    if (other_pd)
        mr->pd = pd;
    if (moves) {
        mr->addr = addr;
        mr->length = length;
    }
    mr->lkey = mr->rkey = sw_mr_key(dev);
    return 0;
}

SW_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
    if (!sw_verbs_is_ours(mr->context->device))
        return sw_stock()->dereg_mr(mr);
    struct sw_verbs_mr *own = (struct sw_verbs_mr *)mr;
    if (!own->dev || own->is_borrowed)
        return EINVAL; /* imported: ibv_unimport_mr */
    sw_import_remove(SW_IMPORT_MR, mr->handle);
    const int rc = sw_mr_dereg(own->dev);
    if (rc) {
        sw_import_add(SW_IMPORT_MR, mr->handle, mr);
        return -rc;
    }
    if (own->dm)
        sw_dm_region_gone(own->dm);
    if (own->mapping)
        munmap(own->mapping, own->mapping_bytes);
    sw_verbs_object_free(mr->context, mr);
    return 0;
}
