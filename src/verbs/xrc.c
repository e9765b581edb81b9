/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/xrc.h"

#include <errno.h>
#include <pthread.h>

#include "device/queue/xrc.h"

static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER; /* every share_next */

struct ibv_xrcd *sw_verbs_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
    const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if (attr->comp_mask != needed)
        return sw_verbs_fail(-EINVAL);
    if (context->device->transport_type == IBV_TRANSPORT_IWARP)
        return sw_verbs_fail(-EOPNOTSUPP);
    struct sw_verbs_xrcd *xrcd = sw_verbs_object_alloc(context, sizeof(*xrcd));
    if (!xrcd)
        return NULL;
    xrcd->ibv.context = context;
    const int rc =
        sw_xrcd_open(sw_verbs_context_of(context)->dev, attr->fd, attr->oflags, &xrcd->dev);
    if (rc) {
        sw_verbs_object_free(context, xrcd);
        return sw_verbs_fail(rc);
    }
    return &xrcd->ibv;
}

int sw_verbs_close_xrcd(struct ibv_xrcd *ibv)
{
    struct sw_verbs_xrcd *xrcd = sw_verbs_xrcd_of(ibv);
    if (atomic_load(&xrcd->users))
        return EBUSY;
    sw_xrcd_close(xrcd->dev);
    sw_verbs_object_free(ibv->context, xrcd);
    return 0;
}

void sw_verbs_xrc_join(struct sw_verbs_qp *qp, struct ibv_xrcd *xrcd)
{
    qp->xrcd = sw_verbs_xrcd_of(xrcd);
    qp->share_next = qp;
    atomic_fetch_add(&qp->xrcd->users, 1);
}

int sw_verbs_xrc_destroy(struct sw_verbs_qp *qp)
{
    pthread_mutex_lock(&handles_lock);
    struct sw_verbs_qp *before = qp;
    while (before->share_next != qp)
        before = before->share_next;
    before->share_next = qp->share_next;
    sw_qp_set_owner(qp->dev, sw_verbs_context_of(before->ibv.context)->dev, before);
    const int rc = sw_qp_destroy(qp->dev);
    pthread_mutex_unlock(&handles_lock);
    return rc;
}

/* Finds the QP, and puts this handle beside the one that its events go to. */
static int share_qp(struct sw_verbs_qp *qp, struct ibv_xrcd *xrcd, uint32_t qpn)
{
    void *owner;
    pthread_mutex_lock(&handles_lock);
    const int rc = sw_xrcd_open_qp(sw_verbs_xrcd_of(xrcd)->dev, qpn, &qp->dev, &owner);
    if (!rc) {
        struct sw_verbs_qp *first = owner;
        sw_verbs_xrc_join(qp, xrcd);
        if (first) {
            qp->share_next = first->share_next;
            first->share_next = qp;
        } else {
            sw_qp_set_owner(qp->dev, sw_verbs_context_of(xrcd->context)->dev, qp);
        }
    }
    pthread_mutex_unlock(&handles_lock);
    return rc;
}

struct ibv_qp *sw_verbs_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
    const uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    if ((attr->comp_mask & needed) != needed || attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED ||
        attr->qp_type != IBV_QPT_XRC_RECV || attr->xrcd->context != context)
        return sw_verbs_fail(-EINVAL);
    struct sw_verbs_qp *qp = sw_verbs_object_alloc(context, sizeof(*qp));
    if (!qp)
        return NULL;
    const int rc = share_qp(qp, attr->xrcd, attr->qp_num);
    if (rc) {
        sw_verbs_object_free(context, qp);
        return sw_verbs_fail(rc);
    }
    struct ibv_qp_attr now;
    struct ibv_qp_cap cap;
    struct ibv_qp *ibv = &qp->ibv;
    sw_qp_query(qp->dev, &now, &cap);
    ibv->context = context;
    ibv->qp_context = attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? attr->qp_context : NULL;
    ibv->handle = sw_verbs_next_handle();
    ibv->qp_num = attr->qp_num;
    ibv->state = now.qp_state;
    ibv->qp_type = IBV_QPT_XRC_RECV;
    pthread_mutex_init(&ibv->mutex, NULL);
    pthread_cond_init(&ibv->cond, NULL);
    return ibv;
}
