/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/cq.h"

#include <pthread.h>
#include <sched.h>

#include "device/rules/device_limits.h"
#include "nic_rig.h"

static bool push(struct sw_cq *cq, uint64_t wr_id, uint32_t qpn, bool solicited)
{
    sw_cq_lock(cq);
    struct sw_cqe *cqe = sw_cq_reserve(cq);
    if (cqe) {
        memset(cqe, 0, sizeof(*cqe));
        cqe->wc.wr_id = wr_id;
        cqe->wc.qp_num = qpn;
        sw_cq_publish(cq);
    }
    sw_cq_unlock(cq, solicited);
    return cqe;
}

static void start_at(struct sw_cq *cq, uint32_t position)
{
    cq->head = position;
    atomic_store(&cq->tail, position);
    atomic_store(&cq->head_seen, position);
}

static void poll_is(struct sw_cq *cq, const uint64_t *wr_ids, int count)
{
    struct ibv_wc wc[64];
    assert_int_equal(sw_cq_poll(cq, 64, wc), count);
    for (int i = 0; i < count; i++)
        assert_int_equal(wc[i].wr_id, wr_ids[i]);
}

static void sw_cq_create__bounds(void **state)
{
    struct rig *rig = *state;
    struct sw_cq *cq = NULL;
    static const int bad[] = {0, -1, SW_MAX_CQE + 1, INT32_MIN};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(sw_cq_create(rig->ctx, bad[i], NULL, NULL, &cq), -EINVAL);
    assert_null(cq);
    static const int sizes[] = {1, 16, 17, 1000};
    for (size_t i = 0; i < 4; i++) {
        cq = rig_cq(rig, sizes[i]);
        assert_true(sw_cq_entries(cq) >= sizes[i]);
        assert_int_equal(sw_cq_destroy(cq), 0);
    }
}

static void sw_cq_destroy__busy(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 1, 1, NULL);
    assert_int_equal(sw_cq_destroy(rig->cq), -EBUSY);
    sw_qp_destroy(qp);
}

static void sw_cq_resize__keeps_entries(void **state)
{
    struct rig *rig = *state;
    struct sw_cq *cq = rig_cq(rig, 16);
    start_at(cq, UINT32_MAX - 3);
    for (uint64_t i = 0; i < 10; i++)
        assert_true(push(cq, i, 1, false));
    assert_int_equal(sw_cq_resize(cq, 9), -EINVAL);
    assert_int_equal(sw_cq_resize(cq, 0), -EINVAL);
    assert_int_equal(sw_cq_resize(cq, SW_MAX_CQE + 1), -EINVAL);
    assert_int_equal(sw_cq_entries(cq), 16);
    assert_int_equal(sw_cq_resize(cq, 100), 0);
    assert_int_equal(sw_cq_entries(cq), 128);
    for (uint64_t i = 10; i < 128; i++)
        assert_true(push(cq, i, 1, false));
    static struct ibv_wc wc[128];
    assert_int_equal(sw_cq_poll(cq, 128, wc), 128);
    for (uint64_t i = 0; i < 128; i++)
        assert_int_equal(wc[i].wr_id, i);
    for (uint64_t i = 0; i < 3; i++)
        assert_true(push(cq, i, 1, false));
    assert_int_equal(sw_cq_resize(cq, 3), 0);
    assert_int_equal(sw_cq_entries(cq), 16);
    poll_is(cq, (uint64_t[]){0, 1, 2}, 3);
    assert_int_equal(sw_cq_destroy(cq), 0);
}

static void sw_cq_poll__in_order_in_pieces_past_the_wrap(void **state)
{
    struct rig *rig = *state;
    struct ibv_wc wc[8];
    start_at(rig->cq, UINT32_MAX - 2);
    for (uint64_t i = 0; i < 7; i++)
        assert_true(push(rig->cq, i, 1, false));
    assert_int_equal(sw_cq_poll(rig->cq, 0, wc), 0);
    assert_int_equal(sw_cq_poll(rig->cq, 4, wc), 4);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(wc[i].wr_id, i);
    poll_is(rig->cq, (uint64_t[]){4, 5, 6}, 3);
    poll_is(rig->cq, NULL, 0);
}

static void sw_cq_poll__overflow_is_told_once_after_what_fitted(void **state)
{
    struct rig *rig = *state;
    struct sw_cq *cq = rig_cq(rig, 16);
    struct ibv_wc wc[16];
    start_at(cq, UINT32_MAX - 7);
    for (uint64_t i = 0; i < 16; i++)
        assert_true(push(cq, i, 1, false));
    assert_int_equal(rig_log.events, 0);
    assert_false(push(cq, 16, 1, false));
    assert_false(push(cq, 17, 1, false));
    assert_int_equal(rig_log.kicks, 1); /* the engine tells, and takes its QPs down */
    assert_int_equal(rig_log.events, 0);
    sw_cq_tell_overflow(cq);
    sw_cq_tell_overflow(cq);
    sw_cq_tell_overflow(rig->cq); /* nothing to tell */
    assert_int_equal(rig_log.events, 1);
    assert_int_equal(rig_log.event, IBV_EVENT_CQ_ERR);
    assert_ptr_equal(rig_log.element, rig);
    assert_int_equal(sw_cq_poll(cq, 16, wc), 16);
    assert_int_equal(wc[15].wr_id, 15);
    assert_int_equal(sw_cq_poll(cq, 16, wc), -1);
    assert_int_equal(sw_cq_destroy(cq), 0);
}

static struct sw_cq *delivers_to;

static void deliver_one(struct sw_qp *qp)
{
    push(delivers_to, qp->qpn, qp->qpn, false);
}

/* Two QPs always have something: each gets its turn. */
static void sw_cq_poll__drives_its_qps_in_turn(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *first = rig_qp(rig, 1, 1, NULL), *second = rig_qp(rig, 1, 1, NULL);
    struct sw_qp *idle = rig_qp(rig, 1, 1, NULL);
    struct ibv_wc wc;
    atomic_store(&first->tx_pending, true);
    atomic_store(&second->tx_pending, true);
    delivers_to = rig->cq;
    rig_log.on_progress = deliver_one;
    for (int i = 0; i < 8; i++)
        assert_int_equal(sw_cq_poll(rig->cq, 1, &wc), 1);
    assert_int_equal(rig_log.progresses, 8);
    int turns = 0;
    for (int i = 0; i < 8; i++) {
        assert_ptr_not_equal(rig_log.order[i], idle);
        turns += rig_log.order[i] == first;
    }
    assert_int_equal(turns, 4);
    rig_log.on_progress = NULL;
    sw_qp_destroy(first);
    sw_qp_destroy(second);
    sw_qp_destroy(idle);
}

static void sw_cq_poll__leaves_a_locked_qp_alone(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 1, 1, NULL);
    struct ibv_wc wc;
    atomic_store(&qp->tx_pending, true);
    sw_lock_acquire(&qp->lock);
    assert_int_equal(sw_cq_poll(rig->cq, 1, &wc), 0);
    assert_int_equal(rig_log.progresses, 0);
    sw_lock_release(&qp->lock);
    assert_int_equal(sw_cq_poll(rig->cq, 1, &wc), 0);
    assert_int_equal(rig_log.progresses, 1);
    sw_qp_destroy(qp);
}

static void sw_cq_req_notify__any_fires_once(void **state)
{
    struct rig *rig = *state;
    push(rig->cq, 1, 1, true);
    assert_int_equal(rig_log.notified, 0); /* not armed */
    sw_cq_req_notify(rig->cq, false);
    assert_int_equal(rig_log.notified, 0); /* what was queued before does not count */
    push(rig->cq, 2, 1, false);
    push(rig->cq, 3, 1, false);
    assert_int_equal(rig_log.notified, 1);
}

static void sw_cq_req_notify__solicited(void **state)
{
    struct rig *rig = *state;
    sw_cq_req_notify(rig->cq, true);
    push(rig->cq, 1, 1, false);
    assert_int_equal(rig_log.notified, 0);
    push(rig->cq, 2, 1, true);
    assert_int_equal(rig_log.notified, 1);
    sw_cq_req_notify(rig->cq, true);
    sw_cq_req_notify(rig->cq, false); /* any is more */
    push(rig->cq, 3, 1, false);
    assert_int_equal(rig_log.notified, 2);
    sw_cq_req_notify(rig->cq, false);
    sw_cq_req_notify(rig->cq, true); /* and stays in force */
    push(rig->cq, 4, 1, false);
    assert_int_equal(rig_log.notified, 3);
}

/* A thread that has armed it and finds nothing sleeps: what other hosts send next has to wake
 * it. */
static void sw_cq_poll__has_the_link_mind_an_armed_queue(void **state)
{
    struct rig *rig = *state;
    struct ibv_wc wc;
    atomic_store(&rig->cq->wired, 1);
    assert_int_equal(sw_cq_poll(rig->cq, 1, &wc), 0);
    assert_int_equal(rig_log.minds, 0); /* not armed: it polls on */
    sw_cq_req_notify(rig->cq, false);
    assert_int_equal(sw_cq_poll(rig->cq, 1, &wc), 0);
    assert_int_equal(rig_log.polls, 2);
    assert_int_equal(rig_log.minds, 1);
    atomic_store(&rig->cq->wired, 0);
}

static void sw_cq_hold_events__until_they_are_released(void **state)
{
    struct rig *rig = *state;
    struct sw_cq *other = rig_cq(rig, 4);
    sw_cq_req_notify(rig->cq, false);
    sw_cq_req_notify(other, false);
    sw_cq_hold_events();
    for (uint64_t i = 0; i < 3; i++)
        assert_true(push(rig->cq, i, 1, false));
    assert_true(push(other, 3, 1, false));
    assert_int_equal(rig_log.notified, 0);
    assert_true(sw_cq_release_events());
    assert_int_equal(rig_log.notified, 2); /* one each */
    sw_cq_hold_events();
    assert_false(sw_cq_release_events());
    sw_cq_req_notify(other, false);
    assert_true(push(other, 4, 1, false));
    assert_int_equal(rig_log.notified, 3); /* at once again */
    assert_int_equal(sw_cq_destroy(other), 0);
}

static void sw_cq_hold_events__of_more_queues_than_it_has_room_for(void **state)
{
    enum { MANY = 40 };
    struct rig *rig = *state;
    struct sw_cq *cqs[MANY];
    sw_cq_hold_events();
    for (int i = 0; i < MANY; i++) {
        cqs[i] = rig_cq(rig, 4);
        sw_cq_req_notify(cqs[i], false);
        assert_true(push(cqs[i], 1, 1, false));
    }
    assert_true(sw_cq_release_events());
    assert_int_equal(rig_log.notified, MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(sw_cq_destroy(cqs[i]), 0);
}

static void *destroy_cq(void *cq)
{
    return (void *)(intptr_t)sw_cq_destroy(cq);
}

/* Its event is still to be fired by another thread. */
static void sw_cq_hold_events__a_queue_is_not_destroyed_before(void **state)
{
    struct rig *rig = *state;
    struct sw_cq *cq = rig_cq(rig, 4);
    pthread_t thread;
    void *rc;
    sw_cq_req_notify(cq, false);
    sw_cq_hold_events();
    assert_true(push(cq, 1, 1, false));
    assert_int_equal(pthread_create(&thread, NULL, destroy_cq, cq), 0);
    for (int i = 0; i < 100; i++)
        sched_yield();
    assert_int_equal(pthread_tryjoin_np(thread, &rc), EBUSY);
    assert_true(sw_cq_release_events());
    assert_int_equal(pthread_join(thread, &rc), 0);
    assert_null(rc);
    assert_int_equal(rig_log.notified, 1);
}

/* Requests that wait in a peer's ring when the CQ is armed must be looked at by somebody. */
static void sw_cq_req_notify__kicks_for_what_waits(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 1, 1, NULL);
    sw_cq_req_notify(rig->cq, false);
    assert_int_equal(rig_log.kicks, 0);
    _Atomic uint32_t seq = 8;
    atomic_store(&qp->rx_seq, &seq);
    atomic_store(&qp->rx_expect, 8);
    sw_cq_req_notify(rig->cq, false);
    assert_int_equal(rig_log.kicks, 1);
    sw_qp_rx_idle(qp);
    sw_qp_destroy(qp);
}

/* Nobody looks whether it has work. */
static void sw_cq_poll__leaves_qps_at_rest_alone(void **state)
{
    struct rig *rig = *state;
    struct sw_cq *other = rig_cq(rig, 4);
    struct sw_qp_init init = {.type = IBV_QPT_RC,
                              .pd = rig->pd,
                              .send_cq = rig->cq,
                              .recv_cq = other,
                              .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
    struct sw_qp *resting, *waking = rig_qp(rig, 1, 1, NULL);
    struct ibv_wc wc;
    assert_int_equal(sw_qp_create(rig->ctx, &init, &resting), 0);
    atomic_store(&resting->tx_pending, true);
    rig_locked(&resting->lock, sw_qp_rest(resting, true));
    rig_locked(&resting->lock, sw_qp_rest(resting, true)); /* not twice */
    sw_cq_poll(other, 1, &wc);
    sw_cq_req_notify(other, false);
    assert_int_equal(rig_log.progresses + rig_log.kicks, 0);
    assert_int_not_equal(sw_qp_set_next(&sw_nic.awake, resting->index), resting->index);
    rig_locked(&resting->lock, sw_qp_rest(resting, false));
    rig_locked(&resting->lock, sw_qp_rest(resting, false));
    sw_cq_poll(other, 1, &wc);
    sw_cq_poll(rig->cq, 1, &wc);
    assert_int_equal(rig_log.progresses, 2);
    assert_ptr_equal(rig_log.order[1], resting);
    sw_cq_req_notify(other, false);
    assert_int_equal(rig_log.kicks, 1);
    assert_int_equal(sw_qp_set_next(&sw_nic.awake, resting->index), resting->index);
    const uint32_t index = resting->index;
    atomic_store(&resting->tx_pending, false);
    sw_qp_destroy(resting);
    assert_int_not_equal(sw_qp_set_next(&sw_nic.awake, index), index);
    assert_int_equal(atomic_load(&other->awake), 0);
    assert_int_equal(atomic_load(&rig->cq->awake), 1);
    sw_qp_destroy(waking);
    sw_cq_destroy(other);
}

static void sw_cq_attach__one_qp_twice(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 1, 1, NULL); /* sends and receives */
    assert_int_equal(rig->cq->qp_count, 1);
    assert_int_equal(atomic_load(&rig->cq->refs), 2);
    sw_qp_destroy(qp);
    assert_int_equal(rig->cq->qp_count, 0);
    assert_int_equal(atomic_load(&rig->cq->refs), 0);
}

static void sw_cq_attach__grows(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qps[40];
    for (int i = 0; i < 40; i++)
        qps[i] = rig_qp(rig, 1, 1, NULL);
    assert_int_equal(rig->cq->qp_count, 40);
    for (int i = 0; i < 40; i += 2) /* out of order */
        sw_qp_destroy(qps[i]);
    for (uint32_t i = 0; i < rig->cq->qp_count; i++)
        for (int j = 0; j < 40; j += 2)
            assert_ptr_not_equal(rig->cq->qps[i], qps[j]);
    for (int i = 1; i < 40; i += 2)
        sw_qp_destroy(qps[i]);
    assert_int_equal(rig->cq->qp_count, 0);
}

/* Times stay with their entries through resizing and purging. */
static void sw_cq_poll_timed__times_of_entries(void **state)
{
    struct rig *rig = *state;
    struct sw_cq *cq = rig_cq(rig, 16);
    struct ibv_wc wc[32];
    uint64_t times_ns[32], before_ns = sw_clock_ns(), wanted[16];
    assert_int_equal(sw_cq_keep_times(cq), 0);
    start_at(cq, UINT32_MAX - 3);
    for (uint32_t i = 0; i < 16; i++) {
        assert_true(push(cq, i, i % 2 ? 5 : 6, false));
        wanted[i] = cq->times_ns[(UINT32_MAX - 3 + i) & cq->mask];
        assert_true(wanted[i] >= before_ns && wanted[i] <= sw_clock_ns());
        before_ns = wanted[i];
    }
    sw_lock_acquire(&cq->poll_lock);
    sw_cq_purge(cq, 5);
    sw_lock_release(&cq->poll_lock);
    assert_int_equal(sw_cq_resize(cq, 32), 0);
    assert_int_equal(sw_cq_poll_timed(cq, 3, wc, times_ns), 3);
    assert_int_equal(sw_cq_poll_timed(cq, 32, wc + 3, times_ns + 3), 5);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(wc[i].wr_id, 2 * i);
        assert_true(times_ns[i] == wanted[2 * i]);
    }
    assert_int_equal(sw_cq_poll_timed(cq, 32, wc, times_ns), 0);
    assert_int_equal(sw_cq_destroy(cq), 0);
}

static void sw_cq_ignore_overrun__loses_the_rest(void **state)
{
    struct rig *rig = *state;
    struct sw_cq *cq = rig_cq(rig, 16);
    struct ibv_wc wc[16];
    sw_cq_ignore_overrun(cq);
    for (uint64_t i = 0; i < 16; i++)
        assert_true(push(cq, i, 1, false));
    assert_false(push(cq, 16, 1, false));
    sw_cq_tell_overflow(cq);
    assert_int_equal(rig_log.kicks, 0);
    assert_int_equal(rig_log.events, 0);
    assert_int_equal(sw_cq_poll(cq, 16, wc), 16);
    assert_int_equal(wc[15].wr_id, 15);
    assert_int_equal(sw_cq_poll(cq, 16, wc), 0);
    assert_int_equal(sw_cq_destroy(cq), 0);
}

static void sw_cq_moderate__by_count(void **state)
{
    struct rig *rig = *state;
    push(rig->cq, 0, 1, false); /* before it was armed: does not count */
    sw_cq_moderate(rig->cq, 3, 1000);
    sw_cq_req_notify(rig->cq, false);
    push(rig->cq, 1, 1, false);
    assert_int_equal(rig_log.kicks, 1); /* the engine minds the period */
    push(rig->cq, 2, 1, false);
    assert_int_equal(rig_log.notified, 0);
    push(rig->cq, 3, 1, false);
    assert_int_equal(rig_log.notified, 1);
    assert_true(sw_cq_moderation_step(UINT64_MAX) == UINT64_MAX);
    push(rig->cq, 4, 1, false);
    assert_int_equal(rig_log.notified, 1);
    assert_int_equal(rig_log.kicks, 1);
}

static void sw_cq_moderate__by_period(void **state)
{
    struct rig *rig = *state;
    uint64_t before_ns = sw_clock_ns();
    sw_cq_moderate(rig->cq, 3, 1000);
    sw_cq_req_notify(rig->cq, false);
    assert_true(sw_cq_moderation_step(before_ns) == UINT64_MAX); /* nothing has come */
    push(rig->cq, 1, 1, false);
    uint64_t due_ns = sw_cq_moderation_step(before_ns);
    assert_true(due_ns >= before_ns + 1000000 && due_ns <= sw_clock_ns() + 1000000);
    assert_true(sw_cq_moderation_step(due_ns - 1) == due_ns);
    assert_int_equal(rig_log.notified, 0);
    assert_true(sw_cq_moderation_step(due_ns) == UINT64_MAX);
    assert_int_equal(rig_log.notified, 1);
}

/* Changing the rules loses no event that is being held back. */
static void sw_cq_moderate__off_while_one_is_held(void **state)
{
    struct rig *rig = *state;
    struct sw_cq *other = rig_cq(rig, 16);
    sw_cq_moderate(other, 2, 1);
    sw_cq_moderate(rig->cq, 3, 1000);
    sw_cq_req_notify(rig->cq, false);
    push(rig->cq, 1, 1, false);
    sw_cq_moderate(rig->cq, 3, 0);
    assert_int_equal(rig_log.notified, 1);
    sw_cq_req_notify(rig->cq, false);
    push(rig->cq, 2, 1, false);
    assert_int_equal(rig_log.notified, 2);
    assert_int_equal(sw_cq_destroy(other), 0);
    assert_null(sw_nic.moderated);
}

static void sw_cq_purge__keeps_others_in_order(void **state)
{
    struct rig *rig = *state;
    static const uint32_t qpns[] = {5, 6, 5, 5, 7, 6, 5};
    struct sw_cq *cq = rig_cq(rig, 16);
    for (uint32_t start = UINT32_MAX - 8; start != 8; start++) { /* each place of the wrap */
        start_at(cq, start);
        for (uint64_t i = 0; i < 7; i++)
            push(cq, i, qpns[i], false);
        sw_lock_acquire(&cq->poll_lock);
        sw_cq_purge(cq, 5);
        sw_lock_release(&cq->poll_lock);
        poll_is(cq, (uint64_t[]){1, 4, 5}, 3);
    }
    assert_int_equal(sw_cq_destroy(cq), 0);
}

/* Room that a purge made can be used again. */
static void sw_cq_purge__full_queue(void **state)
{
    struct rig *rig = *state;
    struct sw_cq *cq = rig_cq(rig, 16);
    for (uint64_t i = 0; i < 16; i++)
        assert_true(push(cq, i, i % 2 ? 5 : 6, false));
    sw_lock_acquire(&cq->poll_lock);
    sw_cq_purge(cq, 9); /* nothing of it */
    sw_cq_purge(cq, 5);
    sw_lock_release(&cq->poll_lock);
    for (uint64_t i = 16; i < 24; i++)
        assert_true(push(cq, i, 7, false));
    poll_is(cq, (uint64_t[]){0, 2, 4, 6, 8, 10, 12, 14, 16, 17, 18, 19, 20, 21, 22, 23}, 16);
    assert_int_equal(rig_log.events, 0);
    assert_int_equal(sw_cq_destroy(cq), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_cq_create__bounds),
        rig_test(sw_cq_destroy__busy),
        rig_test(sw_cq_resize__keeps_entries),
        rig_test(sw_cq_poll__in_order_in_pieces_past_the_wrap),
        rig_test(sw_cq_poll__overflow_is_told_once_after_what_fitted),
        rig_test(sw_cq_poll__drives_its_qps_in_turn),
        rig_test(sw_cq_poll__leaves_a_locked_qp_alone),
        rig_test(sw_cq_req_notify__any_fires_once),
        rig_test(sw_cq_req_notify__solicited),
        rig_test(sw_cq_poll__has_the_link_mind_an_armed_queue),
        rig_test(sw_cq_hold_events__until_they_are_released),
        rig_test(sw_cq_hold_events__of_more_queues_than_it_has_room_for),
        rig_test(sw_cq_hold_events__a_queue_is_not_destroyed_before),
        rig_test(sw_cq_req_notify__kicks_for_what_waits),
        rig_test(sw_cq_poll__leaves_qps_at_rest_alone),
        rig_test(sw_cq_attach__one_qp_twice),
        rig_test(sw_cq_attach__grows),
        rig_test(sw_cq_poll_timed__times_of_entries),
        rig_test(sw_cq_ignore_overrun__loses_the_rest),
        rig_test(sw_cq_moderate__by_count),
        rig_test(sw_cq_moderate__by_period),
        rig_test(sw_cq_moderate__off_while_one_is_held),
        rig_test(sw_cq_purge__keeps_others_in_order),
        rig_test(sw_cq_purge__full_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
