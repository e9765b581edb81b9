/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/send/receive_credit.h"

#include <unistd.h>

#include "base/clock.h"
#include "link/direct/bind/step.h"
#include "link/engine.h"
#include "link_rig.h"

/* IBTA Vol1 table 45: the RNR NAK timer field in milliseconds, as printed there. */
static void sw_rnr_timer_ns__table_45(void **state)
{
    (void)state;
    static const double table_ms[32] = {
        655.36, 0.01,  0.02,  0.03,  0.04,  0.06,   0.08,   0.12,   0.16,   0.24,  0.32,
        0.48,   0.64,  0.96,  1.28,  1.92,  2.56,   3.84,   5.12,   7.68,   10.24, 15.36,
        20.48,  30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52};
    for (uint8_t code = 0; code < 32; code++)
        assert_int_equal(sw_rnr_timer_ns(code), (uint64_t)(table_ms[code] * 1e6 + 0.5));
    assert_int_equal(sw_rnr_timer_ns(32), sw_rnr_timer_ns(0)); /* a field of five bits */
    assert_int_equal(sw_rnr_timer_ns(255), sw_rnr_timer_ns(31));
}

static void recv_at_peer(struct rig *rig, uint64_t wr_id)
{
    struct ibv_recv_wr wr = {.wr_id = wr_id}, *bad;
    assert_int_equal(sw_qp_post_recv(rig->other, &wr, &bad), 0);
}

static void sw_receive_credit__one_for_each_posted_receive(void **state)
{
    struct rig *rig = *state;
    recv_at_peer(rig, 1);
    recv_at_peer(rig, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sw_receive_credit(rig->qp, rig->d), SW_STEP_DONE);
        rig->d->send.recv_used++;
    }
    assert_int_equal(sw_receive_credit(rig->qp, rig->d), SW_STEP_BLOCKED);
    recv_at_peer(rig, 3);
    assert_int_equal(sw_receive_credit(rig->qp, rig->d), SW_STEP_DONE);
}

static void sw_receive_credit__positions_wrap(void **state)
{
    struct rig *rig = *state;
    rig->d->send.recv_used = rig->d->send.recv_posted = UINT32_MAX;
    atomic_store(&rig->other->pub->rq_posted, 1); /* two more than UINT32_MAX */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sw_receive_credit(rig->qp, rig->d), SW_STEP_DONE);
        rig->d->send.recv_used++;
    }
    assert_int_equal(sw_receive_credit(rig->qp, rig->d), SW_STEP_BLOCKED);
    atomic_store(&rig->other->pub->rq_posted, 0);
    rig->d->send.recv_used = rig->d->send.recv_posted = 0;
}

static void retries(struct rig *rig, uint8_t rnr_retry)
{
    rig->qp->attr.rnr_retry = rnr_retry;
    rig->d->send.recv_used = rig->d->send.recv_posted = 0;
    rig->d->send.rnr_ns = 0;
    rig->d->send.rnr_tries = 0;
}

static enum sw_step wait_while_blocked(struct rig *rig, uint64_t *took_ns)
{
    uint64_t start_ns = sw_clock_ns();
    enum sw_step step;
    while ((step = sw_receive_wait(rig->qp, rig->d)) == SW_STEP_BLOCKED &&
           sw_clock_ns() - start_ns < SW_NS_PER_S) {
    }
    *took_ns = sw_clock_ns() - start_ns;
    return step;
}

static void sw_receive_wait__without_retries_fails_at_once(void **state)
{
    struct rig *rig = *state;
    uint64_t took_ns;
    retries(rig, 0);
    assert_int_equal(wait_while_blocked(rig, &took_ns), SW_STEP_FAILED);
    assert_true(took_ns < 600 * SW_NS_PER_MS);
    assert_int_equal(rig->d->send.fail_status, IBV_WC_RNR_RETRY_EXC_ERR);
    assert_int_equal(rig->d->send.fail_verdict, SW_RNR_EXHAUSTED);
}

static void sw_receive_wait__as_many_as_allowed(void **state)
{
    struct rig *rig = *state;
    uint64_t took_ns, timer_ns = sw_rnr_timer_ns(14); /* 1.28 ms */
    rig->other->pub->min_rnr_timer = 14;
    for (uint8_t allowed = 1; allowed <= 6; allowed++) {
        retries(rig, allowed);
        assert_int_equal(wait_while_blocked(rig, &took_ns), SW_STEP_FAILED);
        assert_true(took_ns >= allowed * timer_ns);
        assert_int_equal(rig->d->send.fail_status, IBV_WC_RNR_RETRY_EXC_ERR);
    }
}

static void sw_receive_wait__seven_is_for_ever(void **state)
{
    struct rig *rig = *state;
    rig->other->pub->min_rnr_timer = 1;
    retries(rig, 7);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(sw_receive_wait(rig->qp, rig->d), SW_STEP_BLOCKED);
        usleep(50);
    }
    assert_true(rig->d->send.rnr_tries > 7);
}

static void sw_receive_wait__progress_forgives(void **state)
{
    struct rig *rig = *state;
    uint64_t took_ns;
    rig->other->pub->min_rnr_timer = 14;
    retries(rig, 2);
    rig->d->send.rnr_tries = 1;
    rig->d->send.rnr_ns = 1;
    recv_at_peer(rig, 1);
    assert_int_equal(sw_receive_wait(rig->qp, rig->d), SW_STEP_DONE);
    rig->d->send.recv_used++;
    assert_int_equal(wait_while_blocked(rig, &took_ns), SW_STEP_FAILED);
    assert_true(took_ns >= 2 * sw_rnr_timer_ns(14));
}

static void driven_by_the_engine(const struct rig *rig, bool is)
{
    atomic_store(&sw_engine.driven, is ? rig->qp : NULL);
}

/* A program that polls looks by itself. */
static void sw_receive_wait__the_engine_says_what_it_waits_for(void **state)
{
    struct rig *rig = *state;
    retries(rig, 7);
    assert_int_equal(sw_receive_wait(rig->qp, rig->d), SW_STEP_BLOCKED);
    assert_int_equal(atomic_load(&rig->out->awaits_posted), 0);
    driven_by_the_engine(rig, true);
    assert_int_equal(sw_receive_wait(rig->qp, rig->d), SW_STEP_BLOCKED);
    assert_int_equal(atomic_load(&rig->out->awaits_posted), 1);
    atomic_store(&rig->other->pub->rq_posted, 1);
    assert_int_equal(sw_receive_wait(rig->qp, rig->d), SW_STEP_DONE);
    rig->d->send.recv_used++;
    assert_int_equal(sw_receive_wait(rig->qp, rig->d), SW_STEP_BLOCKED);
    assert_int_equal(atomic_load(&rig->out->awaits_posted), 2);
    driven_by_the_engine(rig, false);
    atomic_store(&rig->other->pub->rq_posted, 0);
    rig->d->send.recv_used = rig->d->send.recv_posted = 0;
}

static uint32_t woken;

static void count_woken(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    woken++;
}

/* A sender that waits is rung once for what it waits for, and not before it is there. */
static void sw_qp_post_recv__wakes_who_waits_for_it(void **state)
{
    struct rig *rig = *state;
    struct sw_qp_ops counting = *rig->other->link;
    counting.wake_sender = count_woken;
    const struct sw_qp_ops *link = rig->other->link;
    rig->other->link = &counting;
    sw_lock_release(&rig->other->lock);
    woken = 0;
    recv_at_peer(rig, 1);
    assert_int_equal(woken, 0);
    atomic_store(&rig->out->awaits_posted, 3);
    recv_at_peer(rig, 2);
    assert_int_equal(woken, 0);
    recv_at_peer(rig, 3);
    assert_int_equal(woken, 1);
    recv_at_peer(rig, 4);
    assert_int_equal(woken, 1);
    atomic_store(&rig->out->awaits_posted, 5);
    recv_at_peer(rig, 5);
    assert_int_equal(woken, 2);
    sw_lock_acquire(&rig->other->lock);
    rig->other->link = link;
}

static void sw_qp_post_recv__asks_nobody_who_is_gone(void **state)
{
    struct rig *rig = *state;
    atomic_store(&rig->out->awaits_posted, 1);
    sw_qp_rx_idle(rig->other);
    recv_at_peer(rig, 1); /* it would wait for the lock */
    assert_int_equal(atomic_load(&rig->other->awaited_rung), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_rnr_timer_ns__table_45),
        rig_test(sw_receive_credit__one_for_each_posted_receive),
        rig_test(sw_receive_credit__positions_wrap),
        rig_test(sw_receive_wait__without_retries_fails_at_once),
        rig_test(sw_receive_wait__as_many_as_allowed),
        rig_test(sw_receive_wait__seven_is_for_ever),
        rig_test(sw_receive_wait__progress_forgives),
        rig_test(sw_receive_wait__the_engine_says_what_it_waits_for),
        rig_test(sw_qp_post_recv__wakes_who_waits_for_it),
        rig_test(sw_qp_post_recv__asks_nobody_who_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
