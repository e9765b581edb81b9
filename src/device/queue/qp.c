/* SPDX-License-Identifier: BSD-2-Clause */
/* Life of a queue pair. The state machine is in qp_modify.c, posting in qp_post.c, errors in
 * qp_fail.c. */
#include "device/queue/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/in_order.h"
#include "device/memory/buffer.h"
#include "device/memory/mr_impl.h"
#include "device/memory/mw.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "device/queue/xrc_impl.h"
#include "device/rules/device_limits.h"

#define LINGER_NS (5 * SW_NS_PER_S) /* in which two processes meet, however busy the machine is */
#define LINGER_PACED_NS (100 * SW_NS_PER_MS) /* where a rate limit has them wait */
#define LINGER_STEP_US 100

/* Never equal to rx_expect of an idle QP (0). */
static const _Atomic uint32_t never = 1;
/* The awaited word of a queue pair that awaits nothing. */
static const _Atomic uint32_t nobody = 0;

void sw_qp_rx_idle(struct sw_qp *qp)
{
    atomic_store(&qp->rx_expect, 0);
    atomic_store(&qp->rx_seq, &never);
    atomic_store(&qp->awaited, &nobody);
    atomic_store(&qp->awaited_rung, 0);
    atomic_store(&qp->rx_pending, false);
    atomic_store(&qp->polls_link, SW_QP_POLLS_NOT);
    qp->tx_goes_on = qp->rx_goes_on = false;
    qp->given = 0;
}

void sw_qp_rest(struct sw_qp *qp, bool rests)
{
    sw_lock_assert_held(&qp->lock);
    const uint32_t change = rests ? -1u : 1;
    if (qp->rests == rests || qp->xrcd)
        return; /* an XRC target's completions go to any CQ of its domain */
    qp->rests = rests;
    if (rests)
        sw_qp_set_remove(&sw_nic.awake, qp->index);
    else
        sw_qp_set_add(&sw_nic.awake, qp->index);
    atomic_fetch_add(&qp->send_cq->awake, change);
    if (qp->recv_cq != qp->send_cq)
        atomic_fetch_add(&qp->recv_cq->awake, change);
}

static int check_caps(const struct ibv_qp_cap *cap, bool has_srq)
{
    if (cap->max_send_wr > SW_MAX_QP_WR || cap->max_send_sge > SW_MAX_SGE ||
        cap->max_inline_data > SW_MAX_INLINE_BYTES)
        return -EINVAL;
    if (!has_srq && (cap->max_recv_wr > SW_MAX_QP_WR || cap->max_recv_sge > SW_MAX_SGE))
        return -EINVAL;
    return 0;
}

static int init_rq(struct sw_qp *qp, struct ibv_qp_cap *cap)
{
    if (qp->srq || !qp->rules->has_rq) {
        cap->max_recv_wr = 0;
        cap->max_recv_sge = 0;
        return 0;
    }
    if (cap->max_recv_sge == 0)
        cap->max_recv_sge = 1;
    struct sw_rq_shape shape =
        sw_rq_shape(cap->max_recv_wr ? cap->max_recv_wr : 1, cap->max_recv_sge);
    pthread_mutex_lock(&sw_nic.lock);
    uint64_t offset = sw_nic_rq_alloc((uint64_t)shape.entries * shape.stride_bytes);
    pthread_mutex_unlock(&sw_nic.lock);
    if (!offset)
        return -ENOMEM;
    qp->rq.ring = (uint8_t *)sw_nic.pub + offset;
    qp->rq.entries = shape.entries;
    qp->rq.stride_bytes = shape.stride_bytes;
    qp->rq.sge_max = cap->max_recv_sge;
    qp->rq.wr_max = shape.entries;
    qp->rq.wr_ids = sw_buffer_alloc(qp->pd, shape.entries * sizeof(uint64_t), SW_BUFFER_QP);
    if (!qp->rq.wr_ids)
        return -ENOMEM; /* free_parts() gives the ring back */
    qp->rq.pd = qp->pd_id;
    cap->max_recv_wr = shape.entries;
    return 0;
}

static int init_queues(struct sw_qp *qp, struct sw_qp_init *init)
{
    int rc = sw_sq_init(&qp->sq, qp->pd, &init->cap, init->sq_sig_all, qp->rules->send_opcodes);
    if (!rc && qp->rules->is_datagram)
        rc = sw_sq_init_routes(&qp->sq);
    qp->sq.names_srq = init->type == IBV_QPT_XRC_SEND;
    return rc ? rc : init_rq(qp, &init->cap);
}

static void free_parts(struct sw_qp *qp)
{
    if (qp->rq.ring) {
        pthread_mutex_lock(&sw_nic.lock);
        sw_nic_rq_free((uint64_t)(qp->rq.ring - (uint8_t *)sw_nic.pub),
                       (uint64_t)qp->rq.entries * qp->rq.stride_bytes);
        pthread_mutex_unlock(&sw_nic.lock);
    }
    sw_buffer_free(qp->rq.wr_ids);
    sw_sq_fini(&qp->sq);
    free(qp);
}

static const struct sw_qp_type *qp_rules_of(const struct sw_context *ctx, enum ibv_qp_type type)
{
    return sw_netdev_is_iwarp(ctx->netdev) ? sw_qp_type_of_iwarp(type) : sw_qp_type(type);
}

/* What a type needs and what it does not look at. */
static int complete_init(struct sw_qp_init *init)
{
    if (init->type == IBV_QPT_XRC_RECV) {
        if (!init->xrcd)
            return -EINVAL;
        init->pd = NULL;
        init->srq = NULL;
        init->send_cq = init->recv_cq = init->xrcd->no_cq;
        init->cap = (struct ibv_qp_cap){0};
        return 0;
    }
    init->xrcd = NULL;
    if (init->type == IBV_QPT_XRC_SEND) {
        init->srq = NULL;
        init->recv_cq = init->send_cq; /* nothing is received */
    }
    return init->pd && init->send_cq && init->recv_cq ? 0 : -EINVAL;
}

static struct sw_qp *alloc_qp(struct sw_context *ctx, const struct sw_qp_init *init)
{
    struct sw_qp *qp = aligned_alloc(SW_CACHELINE, sizeof(*qp));
    if (!qp)
        return NULL;
    memset(qp, 0, sizeof(*qp));
    qp->type = init->type;
    qp->rules = qp_rules_of(ctx, init->type);
    qp->ctx = ctx;
    qp->pd = init->pd;
    qp->pd_id = init->pd ? init->pd->id : 0;
    qp->xrcd = init->xrcd;
    qp->opens = 1;
    qp->held = -1;
    qp->srq = init->srq;
    qp->send_cq = init->send_cq;
    qp->recv_cq = init->recv_cq;
    qp->owner = init->owner;
    qp->blocks_own_multicast = init->blocks_own_multicast;
    qp->link = sw_nic.link->choose(qp);
    qp->state = IBV_QPS_RESET;
    sw_qp_rx_idle(qp);
    return qp;
}

static void qp_write_entry(struct sw_qp *qp, uint32_t state)
{
    struct sw_pub_qp *pub = qp->pub;
    uint32_t generation = (uint32_t)(atomic_load(&pub->bind_word) >> 32) + 1;
    atomic_store(&pub->bind_word, (uint64_t)generation << 32 | SW_PUB_CHANGING);
    SW_PUB_SET(pub->qpn, qp->qpn);
    SW_PUB_SET(pub->dest_qpn, qp->dest_qpn);
    SW_PUB_SET(pub->access, (uint32_t)qp->attr.qp_access_flags);
    SW_PUB_SET(pub->pd, qp->pd_id);
    SW_PUB_SET(pub->recv_cq, qp->recv_cq->index);
    SW_PUB_SET(pub->send_cq, qp->send_cq->index);
    SW_PUB_SET(pub->rq_entries, qp->rq.entries);
    SW_PUB_SET(pub->rq_stride_bytes, qp->rq.stride_bytes);
    SW_PUB_SET(pub->rq_offset, qp->rq.ring ? (uint64_t)(qp->rq.ring - (uint8_t *)sw_nic.pub) : 0);
    SW_PUB_SET(pub->min_rnr_timer, qp->attr.min_rnr_timer);
    SW_PUB_SET(pub->max_dest_rd_atomic, qp->attr.max_dest_rd_atomic);
    SW_PUB_SET(pub->type, (uint8_t)qp->type);
    SW_PUB_SET(pub->in_order, (uint8_t)qp->in_order);
    for (int i = 0; i < 2; i++)
        SW_PUB_SET(pub->domain.id[i], qp->xrcd ? qp->xrcd->name.id[i] : 0);
    atomic_store(&pub->bind_word, (uint64_t)(generation + 1) << 32 | (uint64_t)state);
}

static int qp_claim_index(struct sw_qp *qp)
{
    pthread_mutex_lock(&sw_nic.lock);
    int index = sw_nic_claim_qp(qp);
    if (index >= 0) {
        qp->index = (uint32_t)index;
        qp->ordinal = ++sw_nic.qp_created;
        qp->qpn = qp->shown_qpn = sw_qpn_make(sw_nic.slot, qp->index);
        qp->pub = &sw_nic.pub->qps[index];
        atomic_store(&qp->pub->rq_posted, 0); /* the entry had another owner before */
        atomic_store(&qp->pub->rq_len_min_bytes, 0);
        qp_write_entry(qp, IBV_QPS_RESET); /* nobody has it yet */
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return index < 0 ? index : 0;
}

static void release_index(struct sw_qp *qp)
{
    pthread_mutex_lock(&sw_nic.lock); /* the engine looks QPs up under this lock */
    sw_traffic_keep(qp);
    sw_nic_release_qp(qp->index);
    pthread_mutex_unlock(&sw_nic.lock);
}

int sw_qp_create(struct sw_context *ctx, struct sw_qp_init *init, struct sw_qp **out)
{
    const struct sw_qp_type *rules = qp_rules_of(ctx, init->type);
    if (!rules)
        return init->type >= IBV_QPT_RC && init->type <= IBV_QPT_DRIVER ? -EOPNOTSUPP : -EINVAL;
    int rc = complete_init(init);
    if (!rc)
        rc = check_caps(&init->cap, init->srq || !rules->has_rq);
    if (!rc)
        rc = sw_nic_start(); /* again in a forked child */
    if (rc)
        return rc;
    struct sw_qp *qp = alloc_qp(ctx, init);
    if (!qp)
        return -ENOMEM;
    rc = init_queues(qp, init);
    if (rc)
        goto no_parts;
    qp->attr.cap = init->cap;
    rc = sw_cq_attach(qp->send_cq, qp);
    if (rc)
        goto no_parts;
    rc = sw_cq_attach(qp->recv_cq, qp);
    if (rc)
        goto no_recv_cq;
    rc = qp_claim_index(qp);
    if (rc)
        goto no_index;
    if (qp->xrcd)
        rc = sw_xrcd_add_qp(qp->xrcd, qp);
    if (rc)
        goto no_domain;
    if (qp->pd)
        sw_pd_ref(qp->pd);
    if (qp->srq)
        atomic_fetch_add(&qp->srq->refs, 1);
    *out = qp;
    return 0;

no_domain:
    release_index(qp);
no_index:
    sw_cq_detach(qp->recv_cq, qp);
no_recv_cq:
    sw_cq_detach(qp->send_cq, qp);
no_parts:
    free_parts(qp);
    return rc;
}

/* Whether a handle other than this one remains; `hold`: this one is another process's. */
static bool is_shared(struct sw_qp *qp, bool hold)
{
    pthread_mutex_lock(&sw_nic.lock);
    bool shared = --qp->opens > 0;
    qp->holds -= hold;
    if (shared && qp->opens == qp->holds) /* nobody here is told of its events any more */
        sw_qp_set_owner(qp, qp->xrcd->ctx, NULL);
    pthread_mutex_unlock(&sw_nic.lock);
    return shared;
}

void sw_qp_serve_what_came(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    /* Once in any case: what has come to one at rest may not show yet. */
    bool has_work = true;
    for (int i = 0; i < 8 && !qp->xrcd && has_work && qp->state != IBV_QPS_ERR; i++) {
        qp->link->progress(qp);
        has_work = sw_qp_has_work(qp);
    }
}

/* Datagrams leave a NIC microseconds after they were posted, and programs that have sent their last
 * (mckey) destroy the queue pair at once. Here the first ones to a process wait until both have
 * met. */
static void send_what_waits(struct sw_qp *qp)
{
    const uint64_t until_ns = sw_clock_ns() + (qp->sq.is_paced ? LINGER_PACED_NS : LINGER_NS);
    bool waits = qp->rules->is_datagram;
    while (waits && sw_clock_ns() < until_ns) {
        sw_lock_acquire(&qp->lock);
        waits = !qp->orphan && qp->state == IBV_QPS_RTS && sw_qp_may_send(qp);
        if (waits)
            qp->link->progress(qp);
        waits = waits && sw_qp_may_send(qp);
        sw_lock_release(&qp->lock);
        if (waits)
            usleep(LINGER_STEP_US);
    }
}

struct sw_qp *sw_qp_find(uint32_t qpn)
{
    sw_mutex_assert_held(&sw_nic.lock);
    if (!sw_nic.qps || sw_qpn_slot(qpn) != sw_nic.slot)
        return NULL;
    struct sw_qp *qp = sw_nic.qps[sw_qpn_index(qpn)];
    return qp && qp->qpn == qpn ? qp : NULL;
}

static int destroy_qp(struct sw_qp *qp, bool hold)
{
    if (atomic_load(&qp->groups))
        return -EBUSY; /* ibv_destroy_qp(3) */
    if (qp->xrcd) {
        if (is_shared(qp, hold))
            return 0;
        sw_xrcd_remove_qp(qp);
        if (qp->held >= 0)
            close(qp->held);
    }
    send_what_waits(qp);
    sw_nic.link->qp_forget(qp);
    sw_lock_acquire(&qp->lock);
    if (!qp->orphan) {
        sw_qp_serve_what_came(qp);
        qp->link->disconnect(qp);
    }
    sw_qp_set_state(qp, IBV_QPS_RESET);
    sw_qp_rx_idle(qp);
    atomic_store(&qp->tx_pending, false);
    sw_qp_publish(qp, IBV_QPS_RESET);
    sw_lock_release(&qp->lock);

    sw_mw_forget_qp(qp);
    release_index(qp);
    sw_cq_detach(qp->recv_cq, qp);
    sw_cq_detach(qp->send_cq, qp);
    if (qp->srq)
        atomic_fetch_sub(&qp->srq->refs, 1);
    struct sw_pd *pd = qp->pd;
    free_parts(qp);
    if (pd)
        sw_pd_unref(pd);
    return 0;
}

int sw_qp_destroy(struct sw_qp *qp)
{
    return destroy_qp(qp, false);
}

void sw_qp_release(struct sw_qp *qp)
{
    destroy_qp(qp, true);
}

void sw_qp_set_owner(struct sw_qp *qp, struct sw_context *ctx, void *owner)
{
    sw_lock_acquire(&qp->lock);
    qp->ctx = ctx;
    qp->owner = owner;
    sw_lock_release(&qp->lock);
}

uint32_t sw_qp_num(const struct sw_qp *qp)
{
    return qp->qpn;
}

enum ibv_qp_state sw_qp_state(const struct sw_qp *qp)
{
    return __atomic_load_n(&qp->state, __ATOMIC_RELAXED);
}

void sw_qp_publish(struct sw_qp *qp, uint32_t state)
{
    sw_lock_assert_held(&qp->lock);
    qp_write_entry(qp, state);
}

bool sw_qp_keep_order(struct sw_qp *qp, enum ibv_wr_opcode opcode)
{
    const bool is_write = opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    const bool has_one_peer = qp->type == IBV_QPT_RC || qp->type == IBV_QPT_UC;
    if (!sw_in_order_is_possible() || !is_write || !has_one_peer || qp->orphan ||
        !(qp->rules->send_opcodes >> opcode & 1))
        return false;
    sw_lock_acquire(&qp->lock);
    if (!qp->in_order) {
        qp->in_order = true;
        sw_qp_publish(qp, (uint32_t)atomic_load(&qp->pub->bind_word)); /* as it stands */
    }
    sw_lock_release(&qp->lock);
    sw_nic.link->quiesce(); /* a peer of this host that does not know it yet */
    return true;
}

void sw_qp_quiesce_pd(struct sw_pd *pd)
{
    pthread_mutex_lock(&sw_nic.lock);
    for (uint32_t i = sw_nic_first_qp(); i < SW_MAX_QP; i = sw_nic_next_qp(i)) {
        struct sw_qp *qp = sw_nic.qps[i];
        /* An XRC target may work for any SRQ. */
        if (qp->pd_id != pd->id && (!qp->srq || qp->srq->rq.pd != pd->id) && !qp->xrcd)
            continue;
        if (qp->rq.entries && sw_rq_depth(&qp->rq))
            atomic_store(&qp->pub->rq_len_min_bytes, 0);
        sw_lock_acquire(&qp->lock);
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
}

void sw_qp_fork_child(struct sw_qp *qp)
{
    qp->orphan = true;
    if (qp->held >= 0)
        close(qp->held);
    qp->held = -1;
    atomic_store(&qp->groups, 0);
    qp->lock = qp->rq.lock = (struct sw_lock){0};
    sw_lock_acquire(&qp->lock);
    qp->send_cq->poll_lock = qp->send_cq->push_lock = (struct sw_lock){0};
    qp->recv_cq->poll_lock = qp->recv_cq->push_lock = (struct sw_lock){0};
    qp->state = IBV_QPS_ERR;
    qp->link_state = NULL;
    sw_qp_rest(qp, false);
    sw_qp_rx_idle(qp);
    atomic_store(&qp->tx_pending, false);
    sw_sq_reset(&qp->sq);
    atomic_store(&qp->rq.posted, 0);
    atomic_store(&qp->rq.consumed, 0);
    qp->moved = qp->moved_seen = (struct sw_traffic){0};
    sw_lock_release(&qp->lock);
}
