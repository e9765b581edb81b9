/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/stand_in.h"

#include <errno.h>

#include "device/nic/nic.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "device/queue/xrc_impl.h"

static atomic_uint count;

bool sw_stand_in_is(const struct sw_qp *qp)
{
    return qp->stands_in;
}

/* The domain of an SRQ, kept from being freed until unpin(). */
static int pin_domain_of(uint32_t srq_num, struct sw_xrcd **out)
{
    pthread_mutex_lock(&sw_nic.lock);
    struct sw_xrcd *xrcd = sw_xrcd_of_srq(srq_num);
    bool overrun = false;
    for (struct sw_srq *srq = xrcd ? xrcd->srqs : NULL; srq; srq = srq->domain_next)
        overrun |= sw_cq_is_overrun(srq->cq);
    if (xrcd && !overrun) {
        xrcd->pins++;
        *out = xrcd;
    }
    pthread_mutex_unlock(&sw_nic.lock);
    if (!xrcd)
        return -ENOENT;
    return overrun ? -ENOSPC : 0;
}

static void unpin_domain(struct sw_xrcd *xrcd)
{
    pthread_mutex_lock(&sw_nic.lock);
    xrcd->pins--;
    pthread_mutex_unlock(&sw_nic.lock);
}

static void destroy_stand_in(struct sw_qp *qp)
{
    sw_qp_destroy(qp);
    atomic_fetch_sub(&count, 1);
}

static int start_stand_in(struct sw_qp *qp, const struct sw_stand_in *init,
                          int (*connect)(struct sw_qp *qp, void *arg), void *arg)
{
    sw_lock_acquire(&qp->lock);
    qp->stands_in = true;
    qp->shown_qpn = init->target_qpn;
    qp->dest_qpn = init->initiator_qpn;
    qp->attr.min_rnr_timer = init->min_rnr_timer;
    /* The initiator minds the target's rights, which may change. */
    qp->attr.qp_access_flags =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    sw_qp_set_state(qp, IBV_QPS_RTS);
    int rc = connect(qp, arg);
    sw_lock_release(&qp->lock);
    return rc;
}

int sw_stand_in_create(const struct sw_stand_in *init, int (*connect)(struct sw_qp *qp, void *arg),
                       void *arg, uint32_t *qpn)
{
    struct sw_xrcd *xrcd;
    int rc = pin_domain_of(init->srq_num, &xrcd);
    if (rc)
        return rc;
    struct sw_qp_init qp_init = {.type = IBV_QPT_XRC_RECV, .xrcd = xrcd};
    struct sw_qp *qp;
    rc = sw_qp_create(xrcd->ctx, &qp_init, &qp);
    if (!rc) {
        atomic_fetch_add(&count, 1);
        rc = start_stand_in(qp, init, connect, arg);
        *qpn = sw_qp_num(qp);
        if (rc)
            destroy_stand_in(qp);
    }
    unpin_domain(xrcd);
    return rc;
}

/* Stand-ins of a forked process stay with it. */
static struct sw_qp *find_stand_in(struct sw_xrcd *xrcd, bool (*gone)(struct sw_qp *qp))
{
    for (struct sw_qp *qp = xrcd->qps; qp; qp = qp->domain_next) {
        if (!sw_stand_in_is(qp) || qp->orphan)
            continue;
        sw_lock_acquire(&qp->lock);
        bool found = !gone || gone(qp);
        sw_lock_release(&qp->lock);
        if (found)
            return qp;
    }
    return NULL;
}

/* Takes one that is gone out of use; its domain is pinned. */
static struct sw_qp *find_gone(bool (*gone)(struct sw_qp *qp), struct sw_xrcd **xrcd)
{
    struct sw_qp *qp = NULL;
    pthread_mutex_lock(&sw_nic.lock);
    for (struct sw_xrcd *at = sw_xrcds; at && !qp; at = at->next) {
        qp = find_stand_in(at, gone);
        if (qp) {
            at->pins++;
            *xrcd = at;
        }
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return qp;
}

void sw_stand_in_reap(bool (*gone)(struct sw_qp *qp))
{
    struct sw_xrcd *xrcd;
    struct sw_qp *qp;
    if (!atomic_load_explicit(&count, memory_order_relaxed))
        return;
    while ((qp = find_gone(gone, &xrcd))) {
        destroy_stand_in(qp);
        unpin_domain(xrcd);
    }
}

void sw_stand_in_remove_all(struct sw_xrcd *xrcd)
{
    struct sw_qp *qp;
    do {
        pthread_mutex_lock(&sw_nic.lock);
        qp = find_stand_in(xrcd, NULL);
        pthread_mutex_unlock(&sw_nic.lock);
        if (qp)
            destroy_stand_in(qp);
    } while (qp);
}
