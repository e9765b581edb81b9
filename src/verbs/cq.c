/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/cq.h"

#include <errno.h>
#include <pthread.h>

#include "verbs/async.h"
#include "verbs/channel.h"
#include "verbs/context.h"
#include "verbs/stock.h"

/* What the read functions of an ibv_cq_ex can answer: VLAN tags, flow tags and tag matching are not
 * for a NIC without raw packets. */
#define TIME_FLAGS \
    ((uint64_t)IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
#define SUPPORTED_WC_FLAGS (IBV_WC_STANDARD_FLAGS | TIME_FLAGS)
#define SUPPORTED_CREATE_FLAGS \
    ((uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)

static struct sw_verbs_cq *make_cq(struct ibv_context *context, struct ibv_pd *pd, int cqe,
                                   void *cq_context, struct ibv_comp_channel *channel,
                                   int comp_vector)
{
    if (comp_vector < 0 || comp_vector >= context->num_comp_vectors ||
        (channel && channel->context != context))
        return sw_verbs_fail(-EINVAL);
    struct sw_verbs_cq *cq = sw_verbs_object_alloc(context, sizeof(*cq));
    if (!cq)
        return NULL;
    cq->ibv.context = context;
    cq->ibv.channel = channel;
    cq->ibv.cq_context = cq_context;
    cq->ibv.handle = sw_verbs_next_handle();
    pthread_mutex_init(&cq->ibv.mutex, NULL);
    pthread_cond_init(&cq->ibv.cond, NULL);

    const int rc =
        sw_cq_create_in(sw_verbs_context_of(context)->dev, pd ? sw_verbs_pd_of(pd)->dev : NULL, cqe,
                        channel ? sw_channel_notify : NULL, cq, &cq->dev);
    if (rc) {
        sw_verbs_object_free(context, cq);
        return sw_verbs_fail(rc);
    }
    cq->ibv.cqe = sw_cq_entries(cq->dev);
    if (channel)
        sw_channel_attach(channel);
    return cq;
}

SW_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                       struct ibv_comp_channel *channel, int comp_vector)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->create_cq(context, cqe, cq_context, channel, comp_vector);
    struct sw_verbs_cq *cq = make_cq(context, NULL, cqe, cq_context, channel, comp_vector);
    return cq ? &cq->ibv : NULL;
}

struct ibv_cq_ex *sw_verbs_create_cq_ex(struct ibv_context *context,
                                        struct ibv_cq_init_attr_ex *attr)
{
    const uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    const uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
    if ((attr->wc_flags & ~SUPPORTED_WC_FLAGS) || (attr->comp_mask & ~known) ||
        (flags & ~SUPPORTED_CREATE_FLAGS))
        return sw_verbs_fail(-EOPNOTSUPP);
    if (attr->cqe > INT32_MAX || attr->comp_vector > INT32_MAX)
        return sw_verbs_fail(-EINVAL);
    struct ibv_pd *pd = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? attr->parent_domain : NULL;
    if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD &&
        (!pd || pd->context != context || !sw_verbs_pd_of(pd)->is_parent))
        return sw_verbs_fail(-EINVAL);
    struct sw_verbs_cq *cq = make_cq(context, pd, (int)attr->cqe, attr->cq_context, attr->channel,
                                     (int)attr->comp_vector);
    if (!cq)
        return NULL;
    cq->single_threaded = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    if (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)
        sw_cq_ignore_overrun(cq->dev);
    if (attr->wc_flags & TIME_FLAGS && sw_cq_keep_times(cq->dev)) {
        ibv_destroy_cq(&cq->ibv);
        return sw_verbs_fail(-ENOMEM);
    }
    cq->timed = attr->wc_flags & TIME_FLAGS;
    sw_cq_ex_init(cq);
    return &cq->ex;
}

int sw_verbs_modify_cq(struct ibv_cq *ibv, struct ibv_modify_cq_attr *attr)
{
    if (attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
        return EOPNOTSUPP;
    if (attr->attr_mask)
        sw_cq_moderate(sw_verbs_cq_of(ibv)->dev, attr->moderate.cq_count, attr->moderate.cq_period);
    return 0;
}

SW_EXPORT int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
    if (!sw_verbs_is_ours(ibv->context->device))
        return sw_stock()->resize_cq(ibv, cqe);
    struct sw_verbs_cq *cq = sw_verbs_cq_of(ibv);
    const int rc = sw_cq_resize(cq->dev, cqe);
    if (!rc)
        ibv->cqe = sw_cq_entries(cq->dev);
    return -rc;
}

SW_EXPORT int ibv_destroy_cq(struct ibv_cq *ibv)
{
    if (!sw_verbs_is_ours(ibv->context->device))
        return sw_stock()->destroy_cq(ibv);
    struct sw_verbs_cq *cq = sw_verbs_cq_of(ibv);
    const int rc = sw_cq_destroy(cq->dev);
    if (rc)
        return -rc;
    if (ibv->channel) {
        sw_channel_forget(cq);
        sw_channel_detach(ibv->channel);
    }
    sw_async_forget_cq(cq);
    pthread_cond_destroy(&ibv->cond);
    pthread_mutex_destroy(&ibv->mutex);
    sw_verbs_object_free(ibv->context, cq);
    return 0;
}

static int poll_behind_cache(struct sw_verbs_cq *cq, int num_entries, struct ibv_wc *wc)
{
    const int cached = sw_cq_ex_drain(cq, num_entries, wc);
    if (cached == num_entries)
        return cached;
    const int fresh = sw_cq_poll(cq->dev, num_entries - cached, wc + cached);
    return fresh > 0 ? cached + fresh : (cached ? cached : fresh);
}

int sw_verbs_poll_cq(struct ibv_cq *ibv, int num_entries, struct ibv_wc *wc)
{
    struct sw_verbs_cq *cq = sw_verbs_cq_of(ibv);
    if (SW_UNLIKELY(cq->is_ex))
        return poll_behind_cache(cq, num_entries, wc);
    return sw_cq_poll(cq->dev, num_entries, wc);
}

int sw_verbs_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
    return -sw_cq_req_notify(sw_verbs_cq_of(ibv)->dev, solicited_only != 0);
}
