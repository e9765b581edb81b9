/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains and memory regions. */
#include <errno.h>
#include <stdint.h>

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
    pd->ibv.handle = sw_verbs_next_handle();
    const int rc = sw_pd_alloc(sw_verbs_context_of(context)->dev, &pd->dev);
    if (rc) {
        sw_verbs_object_free(context, pd);
        return sw_verbs_fail(rc);
    }
    return &pd->ibv;
}

SW_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
    if (!sw_verbs_is_ours(pd->context->device))
        return sw_stock()->dealloc_pd(pd);
    const int rc = sw_pd_dealloc(sw_verbs_pd_of(pd)->dev);
    if (rc)
        return -rc;
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
        .handle = sw_verbs_next_handle(),
        .lkey = sw_mr_key(mr->dev),
        .rkey = sw_mr_key(mr->dev),
    };
    return &mr->ibv;
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

SW_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                           uint64_t iova, int fd, int access)
{
    if (!sw_verbs_is_ours(pd->context->device))
        return sw_stock()->reg_dmabuf_mr(pd, offset, length, iova, fd, access);
    return sw_verbs_fail(-EOPNOTSUPP);
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
    struct sw_mr *dev = ((struct sw_verbs_mr *)mr)->dev;
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
    const int rc = sw_mr_dereg(((struct sw_verbs_mr *)mr)->dev);
    if (rc)
        return -rc;
    sw_verbs_object_free(mr->context, mr);
    return 0;
}

/* Objects of ours cannot be imported, because no command descriptor of theirs can be passed to
 * another process. */
SW_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->import_pd(context, pd_handle);
    return sw_verbs_fail(-EOPNOTSUPP);
}

SW_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
    if (!sw_verbs_is_ours(pd->context->device))
        sw_stock()->unimport_pd(pd);
}

SW_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
    if (!sw_verbs_is_ours(pd->context->device))
        return sw_stock()->import_mr(pd, mr_handle);
    return sw_verbs_fail(-EOPNOTSUPP);
}

SW_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
    if (!sw_verbs_is_ours(mr->context->device))
        sw_stock()->unimport_mr(mr);
}

SW_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->import_dm(context, dm_handle);
    return sw_verbs_fail(-EOPNOTSUPP);
}

SW_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
    if (!sw_verbs_is_ours(dm->context->device))
        sw_stock()->unimport_dm(dm);
}
