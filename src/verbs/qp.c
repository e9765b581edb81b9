/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "device/queue/ece.h"
#include "device/rules/device_limits.h"
#include "device/serve/mcast.h"
#include "verbs/async.h"
#include "verbs/builder.h"
#include "verbs/context.h"
#include "verbs/cq.h"
#include "verbs/stock.h"
#include "verbs/xrc.h"

/* Types that exist but are not built, before any of their other arguments is looked at. 0 or a
 * negative errno. */
static int check_type(enum ibv_qp_type type)
{
    switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
        return 0; /* device/ knows which of them it can make */
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_DRIVER:
        return -EOPNOTSUPP;
    }
    return -EINVAL;
}

/* An XRC target has a domain instead of PD and CQs, an XRC initiator no receive side. */
static bool of_context(const struct ibv_context *context, const struct ibv_pd *pd,
                       const struct ibv_xrcd *xrcd, const struct ibv_qp_init_attr *init)
{
    if (init->qp_type == IBV_QPT_XRC_RECV)
        return xrcd && xrcd->context == context;
    if (!pd || pd->context != context || !init->send_cq || init->send_cq->context != context)
        return false;
    if (init->qp_type == IBV_QPT_XRC_SEND)
        return true;
    return init->recv_cq && init->recv_cq->context == context &&
           (!init->srq || init->srq->context == context);
}

static struct sw_cq *device_cq(struct ibv_cq *cq)
{
    return cq ? sw_verbs_cq_of(cq)->dev : NULL;
}

/* What struct ibv_qp_init_attr does not say. */
struct extras {
    struct ibv_pd *pd; /* or xrcd, as the type has it */
    struct ibv_xrcd *xrcd;
    const uint64_t *send_ops; /* NULL: without the builder interface */
    bool blocks_own_multicast;
};

static int create_device_qp(struct sw_verbs_qp *qp, const struct extras *extras,
                            const struct ibv_qp_init_attr *init)
{
    struct sw_qp_init device_init = {
        .type = init->qp_type,
        .pd = qp->ibv.pd && init->qp_type != IBV_QPT_XRC_RECV ? sw_verbs_pd_of(qp->ibv.pd)->dev
                                                              : NULL,
        .send_cq = device_cq(init->send_cq),
        .recv_cq = device_cq(init->recv_cq),
        .xrcd = extras->xrcd ? sw_verbs_xrcd_of(extras->xrcd)->dev : NULL,
        .srq = init->srq ? sw_verbs_srq_of(init->srq)->dev : NULL,
        .cap = init->cap,
        .sq_sig_all = init->sq_sig_all != 0,
        .blocks_own_multicast = extras->blocks_own_multicast,
        .owner = qp,
    };
    const int rc = sw_qp_create(sw_verbs_context_of(qp->ibv.context)->dev, &device_init, &qp->dev);
    if (!rc) {
        qp->cap = device_init.cap;
        qp->sq_sig_all = device_init.sq_sig_all;
    }
    return rc;
}

/* On success init->cap is what was granted. */
static struct ibv_qp *verbs_make_qp(struct ibv_context *context, const struct extras *extras,
                                    struct ibv_qp_init_attr *init)
{
    struct ibv_pd *pd = extras->pd;
    struct ibv_xrcd *xrcd = extras->xrcd;
    const uint64_t *send_ops = extras->send_ops;
    int rc = check_type(init->qp_type);
    if (!rc && send_ops)
        rc = sw_builder_check(context, init->qp_type, *send_ops);
    if (!rc && !of_context(context, pd, xrcd, init))
        rc = -EINVAL;
    if (rc)
        return sw_verbs_fail(rc);

    struct sw_verbs_qp *qp = sw_verbs_object_alloc(context, sizeof(*qp));
    if (!qp)
        return NULL;
    struct ibv_qp *ibv = &qp->ibv;
    ibv->context = context;
    ibv->qp_context = init->qp_context;
    ibv->pd = pd; /* also of an XRC target, which needs none: librdmacm takes it for the ID's */
    if (init->qp_type != IBV_QPT_XRC_RECV)
        ibv->send_cq = init->send_cq;
    if (init->qp_type != IBV_QPT_XRC_RECV && init->qp_type != IBV_QPT_XRC_SEND) {
        ibv->recv_cq = init->recv_cq;
        ibv->srq = init->srq;
    }
    ibv->handle = sw_verbs_next_handle();
    ibv->state = IBV_QPS_RESET;
    ibv->qp_type = init->qp_type;
    pthread_mutex_init(&ibv->mutex, NULL);
    pthread_cond_init(&ibv->cond, NULL);

    rc = create_device_qp(qp, extras, init);
    if (!rc && send_ops) {
        rc = sw_builder_init(qp, *send_ops);
        if (rc)
            sw_qp_destroy(qp->dev);
    }
    if (rc) {
        sw_verbs_object_free(context, qp);
        return sw_verbs_fail(rc);
    }
    if (init->qp_type == IBV_QPT_XRC_RECV)
        sw_verbs_xrc_join(qp, xrcd);
    ibv->qp_num = sw_qp_num(qp->dev);
    init->cap = qp->cap;
    return ibv;
}

SW_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    if (!sw_verbs_is_ours(pd->context->device))
        return sw_stock()->create_qp(pd, init);
    return verbs_make_qp(pd->context, &(struct extras){.pd = pd}, init);
}

struct ibv_qp *sw_verbs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init)
{
    const uint32_t built = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
                           IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if (init->comp_mask & ~built)
        return sw_verbs_fail(-EOPNOTSUPP);
    const uint32_t flags = init->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? init->create_flags : 0;
    if (flags & ~(init->qp_type == IBV_QPT_UD ? (uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0))
        return sw_verbs_fail(-EOPNOTSUPP);
    const struct extras extras = {
        .pd = init->comp_mask & IBV_QP_INIT_ATTR_PD ? init->pd : NULL,
        .xrcd = init->comp_mask & IBV_QP_INIT_ATTR_XRCD ? init->xrcd : NULL,
        .send_ops =
            init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? &init->send_ops_flags : NULL,
        .blocks_own_multicast = flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
    };

    struct ibv_qp_init_attr plain;
    static_assert(offsetof(struct ibv_qp_init_attr_ex, comp_mask) >=
                      offsetof(struct ibv_qp_init_attr, sq_sig_all) + sizeof(plain.sq_sig_all),
                  "the extended attributes begin with the plain ones");
    memcpy(&plain, init, offsetof(struct ibv_qp_init_attr, sq_sig_all) + sizeof(plain.sq_sig_all));
    struct ibv_qp *qp = verbs_make_qp(context, &extras, &plain);
    if (qp)
        init->cap = plain.cap;
    return qp;
}

SW_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibv)
{
    if (!sw_verbs_is_ours(ibv->context->device))
        return sw_stock()->qp_to_qp_ex(ibv);
    struct sw_verbs_qp *qp = sw_verbs_qp_of(ibv);
    return qp->is_ex ? &qp->ex : NULL;
}

SW_EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (!sw_verbs_is_ours(qp->context->device))
        return sw_stock()->modify_qp(qp, attr, mask);
    const int rc = sw_qp_modify(sw_verbs_qp_of(qp)->dev, attr, mask);
    if (!rc && (mask & IBV_QP_STATE))
        qp->state = attr->qp_state;
    return -rc;
}

/* The typical size of packets may be told, but is nothing that a bucket of bytes asks for. */
int sw_verbs_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
{
    const bool shapes_nothing = !attr->rate_limit && (attr->max_burst_sz || attr->typical_pkt_sz);
    if (attr->comp_mask || shapes_nothing)
        return EINVAL;
    return -sw_qp_set_rate(sw_verbs_qp_of(qp)->dev, attr->rate_limit, attr->max_burst_sz);
}

SW_EXPORT int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
                           struct ibv_qp_init_attr *init)
{
    if (!sw_verbs_is_ours(ibv->context->device))
        return sw_stock()->query_qp(ibv, attr, mask, init);
    struct sw_verbs_qp *qp = sw_verbs_qp_of(ibv);
    *init = (struct ibv_qp_init_attr){
        .qp_context = ibv->qp_context,
        .send_cq = ibv->send_cq,
        .recv_cq = ibv->recv_cq,
        .srq = ibv->srq,
        .qp_type = ibv->qp_type,
        .sq_sig_all = qp->sq_sig_all,
    };
    sw_qp_query(qp->dev, attr, &init->cap);
    attr->cap = init->cap;
    if (mask & IBV_QP_STATE)
        ibv->state = attr->qp_state;
    return 0;
}

/* Newer headers have them. */
#define RETURN_CAPS (1u << 0) /* IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS */
#define WHOLE_MSG (1 << 0)
#define ALIGNED_128_BYTES (1 << 1)

SW_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *ibv, enum ibv_wr_opcode op, uint32_t flags)
{
    if (!sw_verbs_is_ours(ibv->context->device))
        return sw_stock()->query_qp_data_in_order(ibv, op, flags);
    if (flags & ~RETURN_CAPS || !sw_qp_keep_order(sw_verbs_qp_of(ibv)->dev, op))
        return 0;
    return flags & RETURN_CAPS ? WHOLE_MSG | ALIGNED_128_BYTES : 1;
}

SW_EXPORT int ibv_destroy_qp(struct ibv_qp *ibv)
{
    if (!sw_verbs_is_ours(ibv->context->device))
        return sw_stock()->destroy_qp(ibv);
    struct sw_verbs_qp *qp = sw_verbs_qp_of(ibv);
    const int rc = qp->xrcd ? sw_verbs_xrc_destroy(qp) : sw_qp_destroy(qp->dev);
    if (rc)
        return -rc;
    if (ibv->send_cq)
        sw_cq_ex_purge(sw_verbs_cq_of(ibv->send_cq), ibv->qp_num);
    if (ibv->recv_cq)
        sw_cq_ex_purge(sw_verbs_cq_of(ibv->recv_cq), ibv->qp_num);
    if (qp->xrcd)
        atomic_fetch_sub(&qp->xrcd->users, 1);
    sw_async_forget_qp(qp);
    sw_builder_fini(qp);
    pthread_cond_destroy(&ibv->cond);
    pthread_mutex_destroy(&ibv->mutex);
    sw_verbs_object_free(ibv->context, qp);
    return 0;
}

int sw_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
    return -sw_qp_post_send(sw_verbs_qp_of(qp)->dev, wr, bad_wr);
}

int sw_verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
    return -sw_qp_post_recv(sw_verbs_qp_of(qp)->dev, wr, bad_wr);
}

/* A group is its GID: RoCE has no LIDs. */
SW_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    return sw_verbs_is_ours(qp->context->device) ? -sw_mcast_attach(sw_verbs_qp_of(qp)->dev, gid)
                                                 : sw_stock()->attach_mcast(qp, gid, lid);
}

SW_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    return sw_verbs_is_ours(qp->context->device) ? -sw_mcast_detach(sw_verbs_qp_of(qp)->dev, gid)
                                                 : sw_stock()->detach_mcast(qp, gid, lid);
}

SW_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    if (!sw_verbs_is_ours(qp->context->device))
        return sw_stock()->set_ece(qp, ece);
    if (ece->comp_mask)
        return EINVAL;
    const int rc = sw_ece_set(sw_verbs_qp_of(qp)->dev, ece->vendor_id, &ece->options);
    if (!rc)
        ece->vendor_id = SW_VENDOR_ID;
    return -rc;
}

SW_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    if (!sw_verbs_is_ours(qp->context->device))
        return sw_stock()->query_ece(qp, ece);
    *ece = (struct ibv_ece){.vendor_id = SW_VENDOR_ID,
                            .options = sw_ece_query(sw_verbs_qp_of(qp)->dev)};
    return 0;
}
