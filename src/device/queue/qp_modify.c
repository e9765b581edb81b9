/* SPDX-License-Identifier: BSD-2-Clause */
/* ibv_modify_qp and ibv_query_qp: values are checked first, then applied, so that a refused call
 * changes nothing. */
#include <errno.h>
#include <sidewire/flush.h>
#include <string.h>

#include "base/clock.h"
#include "device/nic/netdev.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "device/queue/xrc_impl.h"
#include "device/rules/device_limits.h"
#include "device/rules/qp_state.h"
#include "wire/bytes.h"
#include "wire/psn.h"

/* Only these rights of peers mean something to a QP; programs pass their regions' rights. */
#define QP_ACCESS                                                                \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND |      \
     IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT)

static int check_path(struct sw_qp *qp, const struct ibv_ah_attr *ah)
{
    struct sw_gid gid;
    /* RoCE has no LIDs: the path is a GID (IBTA annex A17.4). */
    if (!ah->is_global || ah->port_num != 1)
        return -EINVAL;
    if (!sw_netdev_gid(qp->ctx->netdev, ah->grh.sgid_index, &gid) || !gid.valid)
        return -EINVAL;
    return 0;
}

static bool rate_ok(uint32_t rate_kbps)
{
    return !rate_kbps || (rate_kbps >= SW_MIN_RATE_KBPS && rate_kbps <= SW_MAX_RATE_KBPS);
}

static int check_values(struct sw_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    if (mask & IBV_QP_PKEY_INDEX && attr->pkey_index != 0)
        return -EINVAL;
    if (mask & IBV_QP_PORT && attr->port_num != 1)
        return -EINVAL;
    if (mask & IBV_QP_ACCESS_FLAGS && attr->qp_access_flags & ~(unsigned int)QP_ACCESS)
        return -EINVAL;
    if (mask & IBV_QP_PATH_MTU && (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
        return -EINVAL;
    if (mask & IBV_QP_DEST_QPN && attr->dest_qp_num & ~SW_QPN_MASK)
        return -EINVAL;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > SW_MAX_RD_ATOMIC)
        return -EINVAL;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > SW_MAX_RD_ATOMIC)
        return -EINVAL;
    if (mask & IBV_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31)
        return -EINVAL;
    if (mask & IBV_QP_TIMEOUT && attr->timeout > 31)
        return -EINVAL;
    if (mask & IBV_QP_RETRY_CNT && attr->retry_cnt > 7)
        return -EINVAL;
    if (mask & IBV_QP_RNR_RETRY && attr->rnr_retry > 7)
        return -EINVAL;
    if (mask & IBV_QP_RATE_LIMIT && !rate_ok(attr->rate_limit))
        return -EINVAL;
    /* Paths do not migrate (no IBV_DEVICE_AUTO_PATH_MIG): an alternate one is kept for queries. */
    if (mask & IBV_QP_PATH_MIG_STATE && attr->path_mig_state != IBV_MIG_MIGRATED)
        return -EINVAL;
    if (mask & IBV_QP_ALT_PATH &&
        (attr->alt_port_num != 1 || attr->alt_pkey_index != 0 || attr->alt_timeout > 31))
        return -EINVAL;
    int rc = mask & IBV_QP_AV ? check_path(qp, &attr->ah_attr) : 0;
    if (!rc && mask & IBV_QP_ALT_PATH)
        rc = check_path(qp, &attr->alt_ah_attr);
    return rc;
}

static void set_rate(struct sw_qp *qp, uint32_t rate_kbps, uint32_t burst_bytes)
{
    uint32_t mtu_bytes = qp->rules->is_datagram ? qp->mtu_bytes : 128u << qp->attr.path_mtu;
    qp->attr.rate_limit = rate_kbps;
    qp->sq.is_paced = rate_kbps != 0;
    if (rate_kbps)
        sw_pacer_set(&qp->pacer, sw_clock_ns(), rate_kbps, burst_bytes, mtu_bytes);
}

static void apply_values(struct sw_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    struct ibv_qp_attr *own = &qp->attr;
    if (mask & IBV_QP_PKEY_INDEX)
        own->pkey_index = attr->pkey_index;
    if (mask & IBV_QP_PORT)
        own->port_num = attr->port_num;
    if (mask & IBV_QP_ACCESS_FLAGS)
        own->qp_access_flags = attr->qp_access_flags;
    if (mask & IBV_QP_QKEY)
        own->qkey = attr->qkey;
    if (mask & IBV_QP_AV)
        own->ah_attr = attr->ah_attr;
    if (mask & IBV_QP_PATH_MTU)
        own->path_mtu = attr->path_mtu;
    if (mask & IBV_QP_TIMEOUT)
        own->timeout = attr->timeout;
    if (mask & IBV_QP_RETRY_CNT)
        own->retry_cnt = attr->retry_cnt;
    if (mask & IBV_QP_RNR_RETRY)
        own->rnr_retry = attr->rnr_retry;
    if (mask & IBV_QP_RQ_PSN)
        own->rq_psn = attr->rq_psn & SW_PSN_MASK;
    if (mask & IBV_QP_SQ_PSN)
        own->sq_psn = attr->sq_psn & SW_PSN_MASK;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
        own->max_rd_atomic = attr->max_rd_atomic;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
        own->max_dest_rd_atomic = attr->max_dest_rd_atomic;
    if (mask & IBV_QP_MIN_RNR_TIMER)
        own->min_rnr_timer = attr->min_rnr_timer;
    if (mask & IBV_QP_ALT_PATH) {
        own->alt_ah_attr = attr->alt_ah_attr;
        own->alt_pkey_index = attr->alt_pkey_index;
        own->alt_port_num = attr->alt_port_num;
        own->alt_timeout = attr->alt_timeout;
    }
    if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
        own->en_sqd_async_notify = attr->en_sqd_async_notify;
    if (mask & IBV_QP_RATE_LIMIT)
        set_rate(qp, attr->rate_limit, 0);
    if (mask & IBV_QP_DEST_QPN) {
        own->dest_qp_num = attr->dest_qp_num;
        qp->dest_qpn = attr->dest_qp_num;
    }
}

/* RESET forgets everything but the QP's resources; poll locks of its CQs are held. */
static void reset_qp(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    sw_lock_assert_held(&qp->send_cq->poll_lock);
    sw_lock_assert_held(&qp->recv_cq->poll_lock);
    struct ibv_qp_cap cap = qp->attr.cap;
    qp->link->disconnect(qp);
    sw_qp_set_state(qp, IBV_QPS_RESET);
    sw_qp_rx_idle(qp);
    atomic_store(&qp->tx_pending, false);
    memset(&qp->attr, 0, sizeof(qp->attr));
    qp->attr.cap = cap;
    qp->dest_qpn = 0;
    qp->ece_is_set = false;
    qp->sq.is_paced = false;
    qp->pacer = (struct sw_pacer){0};
    qp->last_wqe_sent = qp->drained_wanted = false;
    sw_sq_reset(&qp->sq);
    sw_lock_acquire(&qp->rq.lock);
    atomic_store(&qp->rq.posted, 0);
    atomic_store(&qp->rq.consumed, 0);
    atomic_store(&qp->rq.claimed, 0);
    atomic_store(&qp->pub->rq_posted, 0);
    atomic_store(&qp->pub->rq_len_min_bytes, 0);
    sw_lock_release(&qp->rq.lock);
    sw_cq_purge(qp->send_cq, qp->qpn);
    if (qp->recv_cq != qp->send_cq)
        sw_cq_purge(qp->recv_cq, qp->qpn);
    sw_qp_publish(qp, qp->state);
}

void sw_qp_tell_drained(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    if (qp->state != IBV_QPS_SQD || !qp->drained_wanted || !sw_sq_is_drained(&qp->sq))
        return;
    qp->drained_wanted = false;
    sw_context_event(qp->ctx, IBV_EVENT_SQ_DRAINED, qp->owner);
}

static int qp_modify_enter_state(struct sw_qp *qp, enum ibv_qp_state next)
{
    const bool drains = qp->state == IBV_QPS_RTS && next == IBV_QPS_SQD;
    int rc = 0;
    switch (next) {
    case IBV_QPS_RESET:
        sw_qp_serve_what_came(qp);
        reset_qp(qp);
        break;
    case IBV_QPS_ERR:
        sw_qp_serve_what_came(qp);
        sw_qp_fail(qp, -1);
        break;
    case IBV_QPS_RTR:
        qp->mtu_bytes = sw_context_mtu_bytes(qp->ctx);
        sw_qp_set_state(qp, IBV_QPS_RTR);
        qp->link = sw_nic.link->choose(qp);
        rc = qp->link->connect(qp);
        if (rc)
            sw_qp_set_state(qp, IBV_QPS_INIT);
        break;
    case IBV_QPS_RTS:
        sw_qp_set_state(qp, IBV_QPS_RTS);
        sw_qp_publish(qp, qp->state);
        if (qp->link->changed)
            qp->link->changed(qp);
        if (qp->sq.next != qp->sq.tail) /* posted while draining */
            qp->link->send(qp);
        break;
    case IBV_QPS_SQD:
        sw_qp_set_state(qp, IBV_QPS_SQD);
        sw_qp_publish(qp, qp->state);
        if (qp->link->changed)
            qp->link->changed(qp);
        qp->drained_wanted = drains ? qp->attr.en_sqd_async_notify != 0 : qp->drained_wanted;
        sw_qp_tell_drained(qp);
        break;
    case IBV_QPS_INIT:
        sw_qp_set_state(qp, IBV_QPS_INIT);
        sw_qp_publish(qp, qp->state);
        break;
    case IBV_QPS_SQE:
    case IBV_QPS_UNKNOWN:
        rc = -EINVAL;
        break;
    }
    return rc;
}

static int check_iwarp(const struct ibv_qp_attr *attr, int mask)
{
    if (mask & IBV_QP_PORT && attr->port_num != 1)
        return -EINVAL;
    if (mask & IBV_QP_PKEY_INDEX && attr->pkey_index != 0)
        return -EINVAL;
    return mask & IBV_QP_ACCESS_FLAGS && attr->qp_access_flags & ~(unsigned int)QP_ACCESS ? -EINVAL
                                                                                          : 0;
}

/* Connection management moves it to RTS. SQD ends the connection in good order, and what is asked
 * of one that has ended is done already: rdma_disconnect() asks late. */
static int enter_iwarp_state(struct sw_qp *qp, enum ibv_qp_state next)
{
    const enum ibv_qp_state current = qp->state;
    switch (next) {
    case IBV_QPS_RESET:
        reset_qp(qp);
        return 0;
    case IBV_QPS_INIT:
    case IBV_QPS_RTR:
        if (current > next)
            return -EINVAL;
        sw_qp_set_state(qp, next);
        sw_qp_publish(qp, next);
        return 0;
    case IBV_QPS_RTS:
        return current == IBV_QPS_RTS ? 0 : -EINVAL;
    case IBV_QPS_SQD:
        if (current == IBV_QPS_RTS)
            sw_qp_fail(qp, -1);
        return 0;
    case IBV_QPS_ERR:
        sw_qp_fail(qp, -1);
        return 0;
    case IBV_QPS_SQE:
    case IBV_QPS_UNKNOWN:
        break;
    }
    return -EINVAL;
}

static int modify_iwarp(struct sw_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    const int ignored = mask & ~(IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT);
    if (qp->orphan)
        return -EINVAL;
    int rc = check_iwarp(attr, mask);
    if (!rc && mask & IBV_QP_STATE)
        rc = enter_iwarp_state(qp, attr->qp_state);
    if (!rc && !(mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET))
        apply_values(qp, attr, mask & ~ignored);
    return rc;
}

static int modify_locked(struct sw_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    sw_lock_assert_held(&qp->lock);
    if (qp->rules->is_iwarp)
        return modify_iwarp(qp, attr, mask);
    enum ibv_qp_state current = qp->state;
    enum ibv_qp_state next = mask & IBV_QP_STATE ? attr->qp_state : current;
    if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != current)
        return -EINVAL;
    if (qp->orphan || !sw_qp_transition_ok(qp->type, current, next, mask))
        return -EINVAL;
    int rc = check_values(qp, attr, mask);
    if (rc)
        return rc;
    struct ibv_qp_attr before = qp->attr;
    uint32_t dest_before = qp->dest_qpn;
    if (next == IBV_QPS_SQD && current != IBV_QPS_SQD)
        qp->attr.en_sqd_async_notify = 0; /* asked for anew each time */
    if (next != IBV_QPS_RESET)
        apply_values(qp, attr, mask);
    rc = qp_modify_enter_state(qp, next);
    if (rc) {
        qp->attr = before;
        qp->dest_qpn = dest_before;
    }
    return rc;
}

static int modify_foreign(struct sw_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    struct ibv_qp_attr asked = *attr;
    return mask ? sw_nic.link->target_call(qp->held, mask, &asked) : 0;
}

static struct sw_peer *qp_modify_meet_peer(const struct ibv_qp_attr *attr, int mask)
{
    const int connects = IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN;
    if ((mask & connects) != connects || attr->qp_state != IBV_QPS_RTR || !sw_nic.link->meet)
        return NULL;
    return sw_nic.link->meet(attr->dest_qp_num, &attr->ah_attr.grh.dgid);
}

int sw_qp_modify(struct sw_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    if (qp->held >= 0)
        return modify_foreign(qp, attr, mask);
    struct sw_peer *peer = qp_modify_meet_peer(attr, mask);
    /* RESET removes completions, which needs the CQs' poll locks, and they come before the QP's. */
    mask = sw_qp_mask_of_type(qp->type, mask);
    bool purge = mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET;
    const bool ends = purge || (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR);
    if (ends && sw_nic.link->catch_up)
        sw_nic.link->catch_up(); /* what has come, before the connection goes */
    struct sw_cq *first = qp->send_cq < qp->recv_cq ? qp->send_cq : qp->recv_cq;
    struct sw_cq *second = first == qp->send_cq ? qp->recv_cq : qp->send_cq;
    if (purge) {
        sw_lock_acquire(&first->poll_lock);
        if (second != first)
            sw_lock_acquire(&second->poll_lock);
    }
    sw_lock_acquire(&qp->lock);
    int rc = modify_locked(qp, attr, mask);
    sw_lock_release(&qp->lock);
    if (peer)
        sw_nic.link->part(peer);
    if (purge) {
        if (second != first)
            sw_lock_release(&second->poll_lock);
        sw_lock_release(&first->poll_lock);
    }
    if (purge && !rc && qp->xrcd)
        sw_xrcd_purge_qp(qp);
    return rc;
}

int sw_qp_set_rate(struct sw_qp *qp, uint32_t rate_kbps, uint32_t burst_bytes)
{
    sw_lock_acquire(&qp->lock);
    bool may = !qp->orphan && qp->state == IBV_QPS_RTS && rate_ok(rate_kbps) &&
               sw_qp_transition_ok(qp->type, IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_RATE_LIMIT);
    if (may)
        set_rate(qp, rate_kbps, burst_bytes);
    sw_lock_release(&qp->lock);
    return may ? 0 : -EINVAL;
}

/* Without its process the QP of another one is in ERR. */
static void query_foreign(struct sw_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_cap *cap)
{
    memset(attr, 0, sizeof(*attr));
    if (sw_nic.link->target_call(qp->held, 0, attr))
        attr->qp_state = attr->cur_qp_state = IBV_QPS_ERR;
    *cap = (struct ibv_qp_cap){0};
}

void sw_qp_query(struct sw_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_cap *cap)
{
    if (qp->held >= 0) {
        query_foreign(qp, attr, cap);
        return;
    }
    sw_lock_acquire(&qp->lock);
    /* Work that the peer has already completed is part of the answer, though nobody has polled
     * since. */
    if (sw_qp_has_work(qp))
        qp->link->progress(qp);
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = qp->state;
    attr->path_mig_state = IBV_MIG_MIGRATED;
    attr->sq_draining = qp->state == IBV_QPS_ERR
                            ? qp->link->is_inside && qp->link->is_inside(qp)
                            : qp->state == IBV_QPS_SQD && !sw_sq_is_drained(&qp->sq);
    *cap = qp->attr.cap;
    sw_lock_release(&qp->lock);
}
