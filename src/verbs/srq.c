/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <pthread.h>

#include "device/queue/xrc.h"
#include "verbs/async.h"
#include "verbs/context.h"
#include "verbs/stock.h"
#include "verbs/xrc.h"

/* `xrcd` and `cq`: of an XRC SRQ, or NULL. */
static struct ibv_srq *make_srq(struct ibv_pd *pd, void *srq_context, struct ibv_srq_attr *attr,
                                struct ibv_xrcd *xrcd, struct ibv_cq *cq)
{
    struct sw_verbs_srq *srq = sw_verbs_object_alloc(pd->context, sizeof(*srq));
    if (!srq)
        return NULL;
    srq->ibv.context = pd->context;
    srq->ibv.srq_context = srq_context;
    srq->ibv.pd = pd;
    srq->ibv.handle = sw_verbs_next_handle();
    pthread_mutex_init(&srq->ibv.mutex, NULL);
    pthread_cond_init(&srq->ibv.cond, NULL);
    int rc = sw_srq_create(sw_verbs_pd_of(pd)->dev, attr, srq, &srq->dev);
    if (!rc && xrcd) {
        srq->xrcd = sw_verbs_xrcd_of(xrcd);
        rc = sw_xrcd_add_srq(srq->xrcd->dev, srq->dev, sw_verbs_cq_of(cq)->dev);
        if (rc)
            sw_srq_destroy(srq->dev);
        else
            atomic_fetch_add(&srq->xrcd->users, 1);
    }
    if (rc) {
        sw_verbs_object_free(pd->context, srq);
        return sw_verbs_fail(rc);
    }
    return &srq->ibv;
}

SW_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
    if (!sw_verbs_is_ours(pd->context->device))
        return sw_stock()->create_srq(pd, init);
    return make_srq(pd, init->srq_context, &init->attr, NULL, NULL);
}

/* The inline ibv_create_srq_ex sends plain requests to ibv_create_srq, so what comes here is mostly
 * XRC and tag matching. */
struct ibv_srq *sw_verbs_create_srq_ex(struct ibv_context *context,
                                       struct ibv_srq_init_attr_ex *init)
{
    const uint32_t known = IBV_SRQ_INIT_ATTR_RESERVED - 1;
    const uint32_t of_xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    const enum ibv_srq_type type =
        init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? init->srq_type : IBV_SRQT_BASIC;
    if ((init->comp_mask & ~known) || (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC))
        return sw_verbs_fail(-EOPNOTSUPP);
    if (!(init->comp_mask & IBV_SRQ_INIT_ATTR_PD) || init->pd->context != context)
        return sw_verbs_fail(-EINVAL);
    if (type == IBV_SRQT_BASIC)
        return make_srq(init->pd, init->srq_context, &init->attr, NULL, NULL);
    if ((init->comp_mask & of_xrc) != of_xrc || init->xrcd->context != context ||
        init->cq->context != context)
        return sw_verbs_fail(-EINVAL);
    return make_srq(init->pd, init->srq_context, &init->attr, init->xrcd, init->cq);
}

SW_EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
    if (!sw_verbs_is_ours(srq->context->device))
        return sw_stock()->modify_srq(srq, attr, mask);
    return -sw_srq_modify(sw_verbs_srq_of(srq)->dev, attr, mask);
}

SW_EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
    if (!sw_verbs_is_ours(srq->context->device))
        return sw_stock()->query_srq(srq, attr);
    sw_srq_query(sw_verbs_srq_of(srq)->dev, attr);
    return 0;
}

SW_EXPORT int ibv_destroy_srq(struct ibv_srq *ibv)
{
    if (!sw_verbs_is_ours(ibv->context->device))
        return sw_stock()->destroy_srq(ibv);
    struct sw_verbs_srq *srq = sw_verbs_srq_of(ibv);
    const int rc = sw_srq_destroy(srq->dev);
    if (rc)
        return -rc;
    if (srq->xrcd)
        atomic_fetch_sub(&srq->xrcd->users, 1);
    sw_async_forget_srq(srq);
    pthread_cond_destroy(&ibv->cond);
    pthread_mutex_destroy(&ibv->mutex);
    sw_verbs_object_free(ibv->context, srq);
    return 0;
}

/* Only SRQs that an XRC initiator names over the wire have a number. */
int sw_verbs_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num)
{
    const uint32_t num = sw_srq_num(sw_verbs_srq_of(srq)->dev);
    if (!num)
        return EOPNOTSUPP;
    *srq_num = num;
    return 0;
}

int sw_verbs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
    return -sw_srq_post_recv(sw_verbs_srq_of(srq)->dev, wr, bad_wr);
}
