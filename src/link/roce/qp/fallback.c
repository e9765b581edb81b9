/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/roce/qp/fallback.h"

#include <assert.h>

#include "link/roce/qp/qp.h"
#include "link/roce/roce.h"

static const struct sw_roce_fallback_ops *ops;

void sw_roce_set_fallback(const struct sw_roce_fallback_ops *next)
{
    ops = next;
}

struct sw_fallback *sw_roce_fallback(const struct sw_qp *qp)
{
    struct sw_roce_qp *r = qp->link == &sw_roce_qp_ops ? qp->link_state : NULL;
    return ops && r && !r->ended_ns && qp->type == IBV_QPT_RC ? &r->fallback : NULL;
}

static void tell_machine(struct sw_roce_qp *r, enum sw_fallback_event event, uint64_t missed_ns)
{
    if (sw_fallback_take(&r->fallback, event, missed_ns) == SW_FALLBACK_CALL)
        ops->call(r->qp);
}

void sw_roce_begin_sending(struct sw_roce_qp *r)
{
    sw_lock_assert_held(&r->qp->lock);
    struct sw_qp *qp = r->qp;
    if (sw_roce_fallback(qp) && qp->state == IBV_QPS_RTS && ops->knows(qp))
        tell_machine(r, SW_FALLBACK_KNOWN, 0);
}

/* A peer that is known to live, and not to have run, has not been missed yet. */
void sw_roce_miss_answer(struct sw_roce_qp *r, uint64_t now_ns)
{
    sw_lock_assert_held(&r->qp->lock);
    const struct sw_retry *retry = &r->requester.retry;
    if (sw_roce_fallback(r->qp) && retry->peer != SW_RETRY_PEER_WAITS)
        tell_machine(r, SW_FALLBACK_UNANSWERED, now_ns - retry->alive_ns);
}

void sw_roce_stop_calling(struct sw_roce_qp *r)
{
    sw_lock_assert_held(&r->qp->lock);
    if (sw_roce_fallback(r->qp))
        ops->hang_up(r->qp);
}

void sw_roce_let_go(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_roce_qp *r = qp->link_state;
    assert(r->fallback.state == SW_FALLBACK_MOVED && !r->receive.is_taken && !r->is_parked);
    sw_roce_leave_peer(r);
    sw_roce_set_timer(qp, UINT64_MAX);
    atomic_store(&qp->tx_pending, false);
    sw_sq_rewind(&qp->sq);
    qp->link_state = NULL;
    sw_roce_bury(r);
}
