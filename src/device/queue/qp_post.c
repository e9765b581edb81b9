/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting to a queue pair, one by one and in batches, and taking what was posted to receive. */
#include <errno.h>
#include <string.h>

#include "device/memory/mr_impl.h"
#include "device/queue/counters.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"

static bool can_post_send(enum ibv_qp_state state)
{
    return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE ||
           state == IBV_QPS_ERR;
}

/* Starts what was appended, as the state demands. */
static void qp_post_start_sends(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    if (qp->state == IBV_QPS_RTS) {
        qp->is_posting = true;
        qp->link->send(qp);
        qp->is_posting = false;
    } else if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE) {
        while (qp->sq.head != qp->sq.tail)
            sw_sq_retire(qp, IBV_WC_WR_FLUSH_ERR);
    } /* SQD: waits for RTS */
}

/* Posts the front of a list by executing it before its bookkeeping: what the target waits for is on
 * its way while the requests are queued, and completed if no answer is awaited. Returns the rest.
 */
static struct ibv_send_wr *post_now(struct sw_qp *qp, struct ibv_send_wr *wr)
{
    struct sw_sq *sq = &qp->sq;
    if (sq->next != sq->tail || sq->is_paced || qp->state != IBV_QPS_RTS || !qp->link->execute_now)
        return wr;
    uint32_t sent = 0, executed = qp->link->execute_now(qp, wr, sw_sq_room(sq), &sent);
    if (!sent && sq->head == sq->tail)
        return sw_sq_complete_executed(qp, wr, executed);
    for (; executed; executed--, wr = wr->next)
        sw_sq_append_executed(sq, wr, executed <= sent ? SW_WQE_SENT : SW_WQE_DONE);
    return wr;
}

/* Whether a link has nothing to do after a post: all of it is done, and all before it. */
static bool is_all_done(const struct sw_qp *qp)
{
    return qp->sq.head == qp->sq.tail &&
           !atomic_load_explicit(&qp->tx_pending, memory_order_relaxed);
}

bool sw_qp_is_armed(const struct sw_qp *qp)
{
    return atomic_load(&qp->send_cq->pub->armed) != SW_CQ_DISARMED ||
           atomic_load(&qp->recv_cq->pub->armed) != SW_CQ_DISARMED;
}

bool sw_qp_kick_later(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    qp->kick_due = qp->is_posting && sw_qp_is_armed(qp);
    return qp->kick_due;
}

/* The engine begins when it can have the QP. */
static void end_posting(struct sw_qp *qp)
{
    const bool kick = qp->kick_due;
    qp->kick_due = false;
    sw_lock_release(&qp->lock);
    if (__builtin_expect(kick, 0))
        sw_nic.link->kick();
}

int sw_qp_post_send(struct sw_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
    int rc = 0;
    sw_lock_acquire(&qp->lock);
    if (__builtin_expect(!can_post_send(qp->state), 0)) {
        sw_lock_release(&qp->lock);
        *bad_wr = wr;
        return -EINVAL;
    }
    if (wr)
        wr = post_now(qp, wr);
    for (; wr; wr = wr->next) {
        rc = qp->sq.routes && !wr->wr.ud.ah ? -EINVAL : sw_sq_append(&qp->sq, wr);
        if (__builtin_expect(rc, 0)) {
            *bad_wr = wr;
            break;
        }
    }
    if (!is_all_done(qp))
        qp_post_start_sends(qp);
    end_posting(qp);
    return rc;
}

void sw_qp_batch_begin(struct sw_qp *qp)
{
    sw_lock_acquire(&qp->lock);
    qp->sq.batch_start = qp->sq.tail;
    qp->sq.batch_error = can_post_send(qp->state) ? 0 : -EINVAL;
}

void sw_qp_batch_add(struct sw_qp *qp, const struct ibv_send_wr *wr)
{
    if (!qp->sq.batch_error)
        qp->sq.batch_error = sw_sq_append(&qp->sq, wr);
}

void sw_qp_batch_flush(struct sw_qp *qp, const struct sw_flush_wr *wr)
{
    if (!qp->sq.batch_error)
        qp->sq.batch_error = sw_sq_append_flush(&qp->sq, wr);
}

void sw_qp_batch_route(struct sw_qp *qp, struct ibv_ah *ah, uint32_t dest_qpn, uint32_t qkey)
{
    if (qp->sq.batch_error)
        return;
    if (!qp->sq.routes || qp->sq.tail == qp->sq.batch_start)
        qp->sq.batch_error = -EINVAL;
    else
        sw_sq_set_route(&qp->sq, qp->sq.tail - 1, ah, dest_qpn, qkey);
}

int sw_qp_batch_commit(struct sw_qp *qp)
{
    int rc = qp->sq.batch_error;
    if (!rc && qp->sq.routes && !sw_sq_is_routed(&qp->sq, qp->sq.batch_start))
        rc = -EINVAL;
    if (__builtin_expect(rc, 0))
        qp->sq.tail = qp->sq.batch_start;
    else
        qp_post_start_sends(qp);
    end_posting(qp);
    return rc;
}

void sw_qp_batch_abort(struct sw_qp *qp)
{
    qp->sq.tail = qp->sq.batch_start;
    sw_lock_release(&qp->lock);
}

void sw_qp_batch_name_srq(struct sw_qp *qp, uint32_t srq_num)
{
    if (qp->sq.tail != qp->sq.batch_start)
        sw_sq_at(&qp->sq, qp->sq.tail - 1)->srq_num = srq_num;
}

/* Rings a peer that sleeps until so many receives are posted, once for each number that it asks
 * for. There is no fence between the post and this look, so a number that was written a moment ago
 * may be missed. The peer looks again by itself then. */
static void wake_sender(struct sw_qp *qp, uint32_t posted)
{
    const _Atomic uint32_t *awaited = atomic_load_explicit(&qp->awaited, memory_order_relaxed);
    const uint32_t number = atomic_load_explicit(awaited, memory_order_relaxed);
    if (__builtin_expect(number == atomic_load_explicit(&qp->awaited_rung, memory_order_relaxed),
                         1) ||
        (int32_t)(posted - number) < 0)
        return;
    atomic_store_explicit(&qp->awaited_rung, number, memory_order_relaxed);
    sw_lock_acquire(&qp->lock);
    if (qp->link->wake_sender)
        qp->link->wake_sender(qp);
    sw_lock_release(&qp->lock);
}

int sw_qp_post_recv(struct sw_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
    int rc = 0;
    struct sw_rq *rq = &qp->rq;
    if (!qp->rq.entries || sw_qp_state(qp) == IBV_QPS_RESET) {
        *bad_wr = wr;
        return -EINVAL;
    }
    sw_lock_acquire(&rq->lock);
    uint32_t posted = atomic_load_explicit(&rq->posted, memory_order_relaxed);
    for (; wr; wr = wr->next) {
        uint32_t room;
        rc = sw_rq_append(rq, wr, &room);
        if (__builtin_expect(rc, 0)) {
            *bad_wr = wr;
            break;
        }
        /* An empty queue owes nothing to earlier receives, so the least length may rise; otherwise
         * it only falls. It is not written without need: senders read its cache line for each list
         * that they post. */
        uint32_t least = atomic_load_explicit(&qp->pub->rq_len_min_bytes, memory_order_relaxed);
        if (room < least ||
            (room > least && posted == atomic_load_explicit(&rq->consumed, memory_order_acquire)))
            atomic_store_explicit(&qp->pub->rq_len_min_bytes, room, memory_order_release);
        posted++;
        atomic_store_explicit(&rq->posted, posted, memory_order_release);
        atomic_store_explicit(&qp->pub->rq_posted, posted, memory_order_release);
    }
    sw_lock_release(&rq->lock);
    wake_sender(qp, posted);
    if (__builtin_expect(sw_qp_state(qp) == IBV_QPS_ERR, 0)) {
        sw_lock_acquire(&qp->lock);
        struct sw_recv_claim claim;
        while (qp->state == IBV_QPS_ERR && sw_qp_take_recv(qp, &claim))
            sw_qp_flush_recv(qp, claim.wr_id);
        sw_lock_release(&qp->lock);
    }
    return rc;
}

bool sw_qp_take_recv(struct sw_qp *qp, struct sw_recv_claim *out)
{
    return sw_qp_take_recv_of(qp, 0, out) == SW_RECV_TAKEN;
}

enum sw_recv_take sw_qp_take_recv_of(struct sw_qp *qp, uint32_t need_bytes,
                                     struct sw_recv_claim *out)
{
    sw_lock_assert_held(&qp->lock);
    if (qp->srq)
        return sw_srq_take_of(qp->srq, need_bytes, out);
    struct sw_rq *rq = &qp->rq;
    if (!sw_rq_depth(rq))
        return SW_RECV_NONE;
    uint32_t at = atomic_load_explicit(&rq->consumed, memory_order_relaxed);
    const struct sw_pub_recv *recv = sw_rq_at(rq, at);
    if (recv->len_bytes < need_bytes)
        return SW_RECV_SHORT;
    out->wr_id = rq->wr_ids[at & (rq->entries - 1)];
    out->pd = rq->pd;
    out->sge_count = recv->sge_count;
    out->len_bytes = recv->len_bytes;
    memcpy(out->sges, recv->sges, recv->sge_count * sizeof(struct ibv_sge));
    atomic_store_explicit(&rq->consumed, at + 1, memory_order_release);
    return SW_RECV_TAKEN;
}

void sw_qp_complete_recv(struct sw_qp *qp, const struct ibv_wc *wc, bool solicited)
{
    sw_lock_assert_held(&qp->lock);
    if (__builtin_expect(wc->status != IBV_WC_SUCCESS, 0))
        sw_counter_add_error(qp->ctx->netdev, wc->status, true);
    sw_cq_complete_recv(qp->recv_cq, wc, solicited);
}
