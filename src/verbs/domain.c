/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread domains and parent domains. A parent domain is its PD for all that is made in it, and says
 * where the memory of queues comes from. A thread domain is a promise that we take no advantage of:
 * a queue pair is also driven by threads that poll its CQ and by the engine.
 */
#include <errno.h>

#include "verbs/context.h"

struct ibv_td *sw_verbs_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
    if (attr->comp_mask)
        return sw_verbs_fail(-EINVAL);
    struct sw_verbs_td *td = sw_verbs_object_alloc(context, sizeof(*td));
    if (!td)
        return NULL;
    td->ibv.context = context;
    return &td->ibv;
}

int sw_verbs_dealloc_td(struct ibv_td *ibv)
{
    struct sw_verbs_td *td = (struct sw_verbs_td *)ibv;
    if (atomic_load(&td->refs))
        return EBUSY;
    sw_verbs_object_free(ibv->context, td);
    return 0;
}

static void *alloc_by_program(void *owner, size_t len_bytes, size_t alignment_bytes, uint64_t type)
{
    struct sw_verbs_pd *pd = owner;
    void *memory =
        pd->parent.alloc(&pd->ibv, pd->parent.pd_context, len_bytes, alignment_bytes, type);
    return memory == IBV_ALLOCATOR_USE_DEFAULT ? SW_ALLOCATOR_DEFAULT : memory;
}

static void free_by_program(void *owner, void *memory, uint64_t type)
{
    struct sw_verbs_pd *pd = owner;
    pd->parent.free(&pd->ibv, pd->parent.pd_context, memory, type);
}

static bool domain_is_sane(const struct ibv_context *context,
                           const struct ibv_parent_domain_init_attr *attr)
{
    const uint32_t known =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    /* Both or neither: what the one gave, the other must take back. */
    return attr->pd && attr->pd->context == context && !sw_verbs_pd_of(attr->pd)->is_parent &&
           (!attr->td || attr->td->context == context) && !(attr->comp_mask & ~known) &&
           (!(attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) ||
            (attr->alloc && attr->free));
}

struct ibv_pd *sw_verbs_alloc_parent_domain(struct ibv_context *context,
                                            struct ibv_parent_domain_init_attr *attr)
{
    if (!domain_is_sane(context, attr))
        return sw_verbs_fail(-EINVAL);
    struct sw_verbs_pd *pd = sw_verbs_object_alloc(context, sizeof(*pd));
    if (!pd)
        return NULL;
    pd->ibv.context = context;
    pd->ibv.handle = attr->pd->handle;
    pd->is_parent = true;
    pd->parent = *attr;
    if (!(attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT))
        pd->parent.pd_context = NULL;

    const struct sw_allocator allocator = {alloc_by_program, free_by_program, pd};
    const bool custom = attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
    const int rc =
        sw_pd_alloc_parent(sw_verbs_pd_of(attr->pd)->dev, custom ? &allocator : NULL, &pd->dev);
    if (rc) {
        sw_verbs_object_free(context, pd);
        return sw_verbs_fail(rc);
    }
    if (attr->td)
        atomic_fetch_add(&((struct sw_verbs_td *)attr->td)->refs, 1);
    return &pd->ibv;
}
