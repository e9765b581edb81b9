/* SPDX-License-Identifier: BSD-2-Clause */
/* The send queue's motor: starts requests in order, retires them in order, fails the QP on the
 * first error. */
#include "link/direct/send/requester.h"

#include <sched.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "device/memory/mw.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/account.h"
#include "link/direct/bind/bind.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/death.h"
#include "link/direct/bind/lane.h"
#include "link/direct/bind/record.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/attach.h"
#include "link/direct/process/block.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/state.h"
#include "link/direct/send/bounce.h"
#include "link/direct/send/fault_gate.h"
#include "link/direct/send/onesided.h"
#include "link/direct/send/twosided.h"
#include "link/direct/send/wake_ahead.h"
#include "link/engine.h"
#include "link/gather.h"
#include "wire/ib_time.h"

/* Bytes moved in one call; the rest goes on in later ones, so that a post never blocks for long. */
#define RUN_BUDGET_BYTES (1u << 20)

/* A target that owes us progress is rung after this long (it may be polling), and again at this
 * interval. */
#define STALL_NS (20 * SW_NS_PER_US)
#define RING_AGAIN_NS (2 * SW_NS_PER_MS)
/* Reading the clock takes longer than a look at the rings: of a poller's looks every so many is
 * enough. */
#define STALL_LOOKS 16u

/* A requester that waits for so long looks whether the peer is still there, and again at this
 * interval. */
#define LOOK_NS (50 * SW_NS_PER_MS)
#define LOOK_AGAIN_NS (5 * SW_NS_PER_MS)

/* An unreachable peer gets at least this long: programs start in any order. */
#define UNREACHABLE_MIN_NS (500 * SW_NS_PER_MS)

/* It is known where its message ends. */
static inline enum sw_step move_message(struct sw_qp *qp, struct sw_direct_qp *d,
                                        struct sw_wqe *wqe, uint32_t position)
{
    if (__builtin_expect(wqe->len_bytes >= SW_WAKE_AHEAD_MIN_BYTES, 0))
        sw_wake_ahead(d, wqe);
    if (wqe->opcode == IBV_WR_SEND || wqe->opcode == IBV_WR_SEND_WITH_IMM ||
        wqe->opcode == IBV_WR_SEND_WITH_INV)
        return sw_twosided_start(qp, d, wqe, position);
    return sw_onesided_start(qp, d, wqe, position);
}

/* Errors are reported in order: not before what is still unanswered. */
static inline enum sw_step end_in_order(enum sw_step step, const struct sw_direct_qp *via)
{
    return step == SW_STEP_FAILED && via->send.answers_due ? SW_STEP_BLOCKED : step;
}

static enum sw_step start_request(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                                  uint32_t position)
{
    if (wqe->flags & SW_WQE_FENCE && d->send.reads_due)
        return SW_STEP_BLOCKED;
    enum sw_step step = sw_fault_gates ? sw_fault_gate_pass(qp, d, wqe, position) : SW_STEP_DONE;
    if (__builtin_expect(step != SW_STEP_DONE, 0))
        return end_in_order(step, d);
    if (qp->type == IBV_QPT_XRC_SEND && !sw_bind_name_srq(d, wqe->srq_num))
        step = sw_step_refused_next(qp, d, SW_NAK_INVALID);
    else
        step = move_message(qp, d, wqe, position);
    return end_in_order(step, d);
}

static inline void retire_done(struct sw_qp *qp)
{
    uint32_t at = qp->sq.head;
    while (at != qp->sq.next && sw_sq_at(&qp->sq, at)->state == SW_WQE_DONE)
        at++;
    if (at != qp->sq.head)
        sw_sq_retire_run(qp, at - qp->sq.head);
}

/* Wakes the peer where its receive CQ is armed for what was sent. The exchange in
 * sw_bind_leave_fenced() came between. */
static void notify_peer(struct sw_direct_qp *d)
{
    uint32_t armed = atomic_load(&d->peer->pub->cqs[d->remote.recv_cq].armed);
    if (d->send.notify_all || sw_cq_is_armed_for(armed, d->send.notify_solicited))
        sw_peer_ring(d->peer);
    d->send.notify = d->send.notify_solicited = d->send.notify_all = false;
}

static bool unreachable_for_too_long(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (sw_bind_is_being_attached(d->peer)) {
        sched_yield(); /* to the engine, which does it and may have only the core we are polling on
                        */
        d->send.unbound_ns = 0;
        return false;
    }
    uint64_t now_ns = sw_clock_ns();
    if (!d->send.unbound_ns)
        d->send.unbound_ns = now_ns;
    if (qp->attr.timeout == 0)
        return false; /* forever */
    uint64_t limit_ns = sw_ib_time_ns(qp->attr.timeout) * (qp->attr.retry_cnt + 1u);
    return now_ns - d->send.unbound_ns > sw_max_u64(limit_ns, UNREACHABLE_MIN_NS);
}

/* What this QP sends; what it fetches comes from its peer. */
#define PACED                                                                      \
    (1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM | 1u << IBV_WR_SEND_WITH_INV | \
     1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM | 1u << IBV_WR_ATOMIC_WRITE)

/* As much of a request as the rate limit allows now. */
static enum sw_step start_paced(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                                uint32_t position)
{
    if (!(PACED >> wqe->opcode & 1))
        return start_request(qp, d, wqe, position);
    uint32_t before = wqe->done_bytes, left = wqe->len_bytes - before;
    uint64_t now_ns = sw_clock_ns(), budget_bytes = d->send.budget_bytes;
    uint32_t allowed = sw_pacer_allows(&qp->pacer, now_ns, left);
    if (allowed < d->send.budget_bytes)
        d->send.budget_bytes = allowed;
    if (left && !allowed)
        return SW_STEP_BLOCKED;
    enum sw_step step = start_request(qp, d, wqe, position);
    bool ended = step != SW_STEP_BLOCKED && step != SW_STEP_FAILED;
    const uint32_t more = wqe->done_bytes > before ? wqe->done_bytes - before : 0; /* not anew */
    uint32_t moved = ended ? left : more;
    sw_pacer_charge(&qp->pacer, now_ns, moved);
    bool is_held = !ended && moved == allowed && allowed < left;
    d->send.budget_bytes = is_held || moved >= budget_bytes ? 0 : budget_bytes - moved;
    return step;
}

void sw_direct_send_leave(struct sw_direct_qp *d)
{
    sw_account_tell(d);
    if (!d->send.notify) {
        sw_bind_leave(d);
        return;
    }
    sw_bind_leave_fenced(d);
    notify_peer(d);
}

/* Starts what can be started by this connection. Returns FAILED or whatever else. */
static enum sw_step run_requests(struct sw_qp *qp, struct sw_direct_qp *via)
{
    enum sw_step step = SW_STEP_DONE;
    const bool names_srq = qp->type == IBV_QPT_XRC_SEND;
    while (sw_qp_may_send(qp)) {
        struct sw_wqe *wqe = sw_sq_at(&qp->sq, qp->sq.next);
        if (__builtin_expect(sw_wqe_is_local(wqe), 0))
            break; /* waits for accesses to end, so not inside one: requester_run_local() */
        if (__builtin_expect(names_srq, 0) && !sw_lane_leads_to(via, wqe->srq_num))
            break;
        step = __builtin_expect(qp->sq.is_paced, 0) ? start_paced(qp, via, wqe, qp->sq.next)
                                                    : start_request(qp, via, wqe, qp->sq.next);
        if (step == SW_STEP_BLOCKED || step == SW_STEP_FAILED)
            break;
        wqe->state = step == SW_STEP_SENT ? SW_WQE_SENT : SW_WQE_DONE;
        sw_account_request(qp, via, wqe->opcode, wqe->len_bytes);
        qp->sq.next++;
    }
    return step;
}

/* The queue pair fails by what failed in the connection that was in use. */
static void requester_take_failure(struct sw_direct_qp *d, const struct sw_direct_qp *via)
{
    d->send.fail_status = via->send.fail_status;
    d->send.fail_verdict = via->send.fail_verdict;
}

/* The same by a lane, or by d itself if the request names an SRQ there. */
static enum sw_step run_xrc(struct sw_qp *qp, struct sw_direct_qp *d)
{
    struct sw_direct_qp *via = d;
    enum sw_step step = sw_lane_enter(qp, d, &via);
    step = end_in_order(step, sw_lane_busy(d)); /* the lane entered, if one was */
    if (step != SW_STEP_DONE || via == d)
        return step == SW_STEP_DONE ? run_requests(qp, d) : step;
    via->send.budget_bytes = d->send.budget_bytes;
    step = run_requests(qp, via);
    d->send.budget_bytes = via->send.budget_bytes;
    requester_take_failure(d, via);
    sw_direct_send_leave(via);
    return step;
}

static enum sw_step run_section(struct sw_qp *qp, struct sw_direct_qp *d)
{
    enum sw_step step =
        __builtin_expect(qp->type == IBV_QPT_XRC_SEND, 0) ? run_xrc(qp, d) : run_requests(qp, d);
    if (step == SW_STEP_FAILED && d->send.fail_verdict != SW_ACK &&
        d->rules[d->send.fail_verdict].responder_fatal)
        sw_record_fatal(d, d->send.fail_verdict);
    sw_direct_send_leave(d);
    return step;
}

/* Binds and invalidates at the front of the queue, each when all before it has ended: stricter than
 * IBTA Vol1 10.8.3.3 demands, and the same on every rung. */
static enum sw_step requester_run_local(struct sw_qp *qp, struct sw_direct_qp *d)
{
    while (sw_qp_may_send(qp) && sw_wqe_is_local(sw_sq_at(&qp->sq, qp->sq.next))) {
        if (d->send.answers_due)
            return SW_STEP_BLOCKED;
        struct sw_wqe *wqe = sw_sq_at(&qp->sq, qp->sq.next);
        enum ibv_wc_status status = sw_mw_execute(qp, wqe);
        if (status != IBV_WC_SUCCESS)
            return sw_step_local_error(d, status);
        wqe->state = SW_WQE_DONE;
        qp->sq.next++;
    }
    return SW_STEP_DONE;
}

/* Starts what can be started, with the peer or without. */
static enum sw_step run_queue(struct sw_qp *qp, struct sw_direct_qp *d)
{
    enum sw_step step = requester_run_local(qp, d);
    d->send.budget_bytes = RUN_BUDGET_BYTES;
    while (step != SW_STEP_BLOCKED && step != SW_STEP_FAILED && sw_qp_may_send(qp)) {
        if (__builtin_expect(!sw_bind_enter(qp, d), 0))
            return !d->rules[SW_UNREACHABLE].lost && unreachable_for_too_long(qp, d) &&
                           !(d->xrc.busy && d->xrc.busy->send.answers_due)
                       ? (d->send.answers_due ? sw_step_refused(d, SW_UNREACHABLE)
                                              : sw_step_refused_next(qp, d, SW_UNREACHABLE))
                       : SW_STEP_BLOCKED;
        d->send.unbound_ns = 0;
        step = run_section(qp, d);
        if (step != SW_STEP_BLOCKED && step != SW_STEP_FAILED)
            step = requester_run_local(qp, d);
    }
    return step;
}

/* `keeps_peer`: nothing is wrong with the connection, so an unreliable QP goes on receiving. */
static void fail_request(struct sw_qp *qp, struct sw_direct_qp *d, bool keeps_peer)
{
    retire_done(qp);
    enum ibv_wc_status status = d->send.fail_status;
    struct sw_peer *peer = d->peer;
    qp->tx_goes_on = false;
    if (peer && d->send.fail_verdict != SW_ACK && d->rules[d->send.fail_verdict].responder_fatal &&
        atomic_load(&peer->state) == SW_PEER_READY)
        sw_peer_ring(peer); /* its program may only be waiting for events */
    if (keeps_peer) {
        sw_qp_fail_send(qp, status);
        return;
    }
    if (qp->sq.head != qp->sq.tail)
        sw_sq_retire(qp, status);
    sw_qp_fail(qp, -1);
}

/* The end of what may be lost: a bind or an invalidate needs no peer and is done all the same, and
 * in SQD what has not begun waits. */
static uint32_t end_of_losses(struct sw_qp *qp)
{
    struct sw_sq *sq = &qp->sq;
    uint32_t at = sq->next, end = sq->tail;
    if (qp->state != IBV_QPS_RTS)
        end = at + (sw_sq_has_begun(sq) ? 1 : 0);
    while (at != end && !sw_wqe_is_local(sw_sq_at(sq, at)))
        at++;
    return at;
}

/* Something of the peer's waits to be served: it may be a goodbye, and the peer there again. */
static bool requester_has_come(const struct sw_direct_qp *d)
{
    return atomic_load_explicit(&d->rx->requests[d->serve.at % SW_REQUEST_SLOTS].seq,
                                memory_order_acquire) == d->serve.at + 1;
}

/* Whether the peer will be there in a moment, as far as can be told. */
static bool requester_is_worth_waiting(const struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (!sw_bind_is_awaited(qp, d))
        return false;
    uint64_t now_ns = sw_clock_ns();
    if (!d->send.unbound_ns)
        d->send.unbound_ns = now_ns;
    return now_ns - d->send.unbound_ns < UNREACHABLE_MIN_NS;
}

static bool can_enter(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (!sw_bind_enter(qp, d))
        return false;
    sw_bind_leave(d);
    return true;
}

/* Whether nobody is there to take an unreliable message; then all that waits is lost. */
static bool lose_sends(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (!d->rules[SW_UNREACHABLE].lost || sw_bind_is_being_attached(d->peer))
        return false;
    if (can_enter(qp, d))
        return false;
    if ((d->rx && requester_has_come(d)) || requester_is_worth_waiting(qp, d))
        return false;
    d->send.answers_due = 0;
    d->send.in_doubt = false;
    sw_sq_retire_run(qp, end_of_losses(qp) - qp->sq.head);
    return qp->sq.head == qp->sq.tail;
}

/* Whether this look at a stall is one that reads the clock: the engine's are. */
static bool looks_at_clock(struct sw_direct_qp *d)
{
    uint32_t turn = atomic_load_explicit(&sw_direct.turns, memory_order_relaxed);
    if (turn == d->send.stall_turn && ++d->send.stall_looks < STALL_LOOKS)
        return false;
    d->send.stall_turn = turn;
    d->send.stall_looks = 0;
    return true;
}

/* A target that owes answers or room: if it does not look by itself, its engine must. Returns
 * whether we have waited for so long that we should see to the peer. */
static bool mind_stall(struct sw_direct_qp *d, bool stalled, bool owes)
{
    if (!stalled) {
        d->send.stalled_ns = 0;
        return false;
    }
    if (!looks_at_clock(d))
        return false;
    uint64_t now_ns = sw_clock_ns();
    if (!d->send.stalled_ns) {
        d->send.stalled_ns = now_ns;
        d->send.rung_ns = 0;
        return false;
    }
    if (owes && now_ns - d->send.stalled_ns >= STALL_NS &&
        (!d->send.rung_ns || now_ns - d->send.rung_ns >= RING_AGAIN_NS)) {
        d->send.rung_ns = now_ns;
        if (atomic_load(&d->peer->state) == SW_PEER_READY)
            sw_peer_ring(d->peer);
    }
    if (now_ns - d->send.stalled_ns < LOOK_NS || now_ns - d->send.looked_ns < LOOK_AGAIN_NS)
        return false;
    d->send.looked_ns = now_ns;
    return true;
}

/* Nothing comes from the peer. Its process may be gone, which the engine sees as well, if it gets a
 * processor. Or its QP is: then nobody will ever answer, and a wire would have the retries run out.
 * True: the QP has failed. */
static bool see_to_peer(struct sw_qp *qp, struct sw_direct_qp *d, const struct sw_direct_qp *via)
{
    if (via->peer && sw_attach_is_gone(via->peer)) {
        if (via != d)
            return false; /* read_answers() finds the lane dead */
        sw_bind_bury(qp, d);
        if (qp->state == IBV_QPS_ERR || qp->link_state != d)
            return true;
    }
    if (via != d || !d->send.answers_due || d->rules[SW_UNREACHABLE].lost)
        return false;
    if (can_enter(qp, d)) {
        d->send.unbound_ns = 0;
        return false;
    }
    if (!unreachable_for_too_long(qp, d))
        return false;
    sw_step_refused(d, SW_UNREACHABLE);
    fail_request(qp, d, false);
    return true;
}

/* A lane's request was refused, or its process is gone, and its SRQs with it: the target, which had
 * no part in it, must hear of it. */
static void tell_target(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (!d->rules[d->send.fail_verdict].responder_fatal || !sw_bind_enter(qp, d))
        return;
    sw_record_fatal(d, d->send.fail_verdict);
    sw_direct_send_leave(d);
}

/* Reads answers; false if the request at the head has failed. */
static inline bool read_answers(struct sw_qp *qp, struct sw_direct_qp *d)
{
    struct sw_direct_qp *via = sw_lane_busy(d);
    if (__builtin_expect(!via->send.answers_due && !sw_bounce_sending(qp), 1))
        return true;
    bool good = sw_bounce_collect(qp, via);
    if (__builtin_expect(via == d, 1))
        return good;
    if (good && (via->send.answers_due || sw_bounce_sending(qp)) && sw_lane_is_lost(qp, via)) {
        sw_step_refused(via, SW_NAK_INVALID);
        good = false;
    }
    requester_take_failure(d, via);
    if (!good)
        tell_target(qp, d);
    return good;
}

/* Reads answers. False: a request has failed, and so has the QP. */
static inline bool collect_answers(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (__builtin_expect(read_answers(qp, d), 1))
        return true;
    fail_request(qp, d, false);
    return false;
}

bool sw_direct_send_collect(struct sw_qp *qp, struct sw_direct_qp *d)
{
    sw_lock_assert_held(&qp->lock);
    if (!collect_answers(qp, d))
        return false;
    retire_done(qp);
    return true;
}

/* Starts what waits. FAILED: so has the QP. */
static inline enum sw_step start_requests(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (!sw_qp_may_send(qp))
        return SW_STEP_DONE;
    const enum sw_step step = run_queue(qp, d);
    if (__builtin_expect(step == SW_STEP_FAILED, 0))
        fail_request(qp, d, true);
    return step;
}

void sw_direct_send_run(struct sw_qp *qp, struct sw_direct_qp *d)
{
    sw_lock_assert_held(&qp->lock);
    if (!collect_answers(qp, d))
        return;
    const enum sw_step step = start_requests(qp, d);
    if (__builtin_expect(step == SW_STEP_FAILED, 0))
        return;
    retire_done(qp);
    bool pending = qp->sq.head != qp->sq.tail && !lose_sends(qp, d);
    if (__builtin_expect(qp->state == IBV_QPS_SQD, 0)) {
        sw_qp_tell_drained(qp);
        pending = !sw_sq_is_drained(&qp->sq);
    }
    if (__builtin_expect(pending, 0)) {
        struct sw_direct_qp *via = sw_lane_busy(d);
        bool waits = step == SW_STEP_BLOCKED && d->send.budget_bytes;
        qp->tx_goes_on = step == SW_STEP_BLOCKED && !d->send.budget_bytes && !qp->sq.is_paced;
        bool owes = via->send.answers_due || (waits && !d->send.rnr_ns && !d->send.unbound_ns);
        if (mind_stall(via, via->send.answers_due || waits, via->tx && owes) &&
            see_to_peer(qp, d, via))
            return;
        const bool later = qp->tx_goes_on && sw_qp_kick_later(qp);
        if (!atomic_load_explicit(&qp->tx_pending, memory_order_relaxed)) {
            atomic_store(&qp->tx_pending, true);
            if (!later)
                sw_engine_nudge();
        }
    } else if (atomic_load_explicit(&qp->tx_pending, memory_order_relaxed)) {
        d->send.stalled_ns = 0;
        qp->tx_goes_on = false;
        atomic_store_explicit(&qp->tx_pending, false, memory_order_relaxed);
    }
}

/* While answers are due, pollers and the engine look at them anyway. To look with each post as well
 * would take the target's line from it for each message. */
void sw_direct_send_push(struct sw_qp *qp, struct sw_direct_qp *d)
{
    sw_lock_assert_held(&qp->lock);
    const bool is_watched = sw_lane_busy(d)->send.answers_due &&
                            atomic_load_explicit(&qp->tx_pending, memory_order_relaxed);
    if (!is_watched)
        sw_direct_send_run(qp, d);
    else
        start_requests(qp, d);
}
