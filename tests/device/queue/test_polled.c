/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a program polls, as the engine finds out. */
#include "device/queue/polled.h"

#include "base/clock.h"
#include "device/queue/cq.h"
#include "nic_rig.h"

#define US SW_NS_PER_US

static struct sw_polled polled;
static uint64_t now_ns;
static uint32_t polls;

static int setup(void **state)
{
    (void)state;
    polled = (struct sw_polled){0};
    polls = 0;
    now_ns = SW_NS_PER_S;
    return 0;
}

/* So long after the last look, the program having polled so often meanwhile. */
static enum sw_poller look(uint64_t later_ns, uint32_t more)
{
    now_ns += later_ns;
    polls += more;
    return sw_polled_look(&polled, polls, now_ns);
}

static void sw_polled_look__nobody(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        assert_int_equal(look(i * US, 0), SW_POLLER_NONE);
}

static void sw_polled_look__who_spins(void **state)
{
    (void)state;
    look(US, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(look(50 * US, 500), SW_POLLER_PERHAPS);
    for (int i = 0; i < 10; i++)
        assert_int_equal(look(1000 * US, 10000), SW_POLLER_STEADY);
}

/* Now and then is not enough: what comes would wait for the next poll. */
static void sw_polled_look__now_and_then(void **state)
{
    (void)state;
    look(US, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(look(1000 * US, 1), SW_POLLER_NONE);
}

/* It has gone: at once if it was looked at long after, or when it has not polled for a while. */
static void sw_polled_look__stops(void **state)
{
    (void)state;
    look(US, 0);
    assert_int_equal(look(1000 * US, 10000), SW_POLLER_PERHAPS);
    assert_int_equal(look(20 * US, 0), SW_POLLER_NONE);
    polled.backoff = (struct sw_backoff){0};
    for (int i = 0; i < 5; i++)
        look(1000 * US, 10000);
    for (int i = 0; i < 19; i++)
        assert_int_equal(look(US, 0), SW_POLLER_STEADY);
    assert_int_equal(look(US, 0), SW_POLLER_NONE);
    assert_int_equal(look(10 * US, 100), SW_POLLER_PERHAPS); /* and begins anew */
}

/* One that polls, and then looks at its memory: after one time in vain it is not waited for, but
 * now and then, until it polls on. */
static void sw_polled_look__in_vain(void **state)
{
    (void)state;
    int waited = 0;
    look(US, 0);
    for (int i = 0; i < 586; i++) {
        const enum sw_poller first = look(30 * US, 100);
        waited += first != SW_POLLER_NONE;
        assert_int_equal(look(50 * US, 0), SW_POLLER_NONE);
    }
    assert_int_equal(waited, 10);
    for (int i = 0; i < 64; i++)
        assert_int_equal(look(50 * US, 100), SW_POLLER_NONE);
    for (int i = 0; i < 3; i++)
        assert_int_equal(look(50 * US, 100), SW_POLLER_PERHAPS);
    assert_int_equal(look(50 * US, 100), SW_POLLER_STEADY);
}

/* The count runs around. */
static void sw_polled_look__around(void **state)
{
    (void)state;
    polls = UINT32_MAX - 5;
    look(US, 0);
    assert_int_equal(look(10 * US, 10), SW_POLLER_PERHAPS);
}

/* A thread that has armed a completion queue is about to sleep, however often it has polled. */
static void sw_qp_poller__of_its_queues(void **state)
{
    struct rig *rig = *state;
    struct sw_qp *qp = rig_qp(rig, 1, 1, NULL);
    struct ibv_wc wc;
    pthread_mutex_lock(&sw_nic.lock);
    assert_int_equal(sw_qp_poller(qp, SW_NS_PER_S), SW_POLLER_NONE);
    for (int i = 0; i < 100; i++)
        sw_cq_poll(rig->cq, 1, &wc);
    assert_int_equal(sw_qp_poller(qp, SW_NS_PER_S + 100 * US), SW_POLLER_PERHAPS);
    sw_cq_poll(rig->cq, 1, &wc);
    assert_int_equal(sw_cq_req_notify(rig->cq, false), 0);
    assert_int_equal(sw_qp_poller(qp, SW_NS_PER_S + 101 * US), SW_POLLER_NONE);
    pthread_mutex_unlock(&sw_nic.lock);
    sw_qp_destroy(qp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sw_polled_look__nobody, setup),
        cmocka_unit_test_setup(sw_polled_look__who_spins, setup),
        cmocka_unit_test_setup(sw_polled_look__now_and_then, setup),
        cmocka_unit_test_setup(sw_polled_look__stops, setup),
        cmocka_unit_test_setup(sw_polled_look__in_vain, setup),
        cmocka_unit_test_setup(sw_polled_look__around, setup),
        rig_test(sw_qp_poller__of_its_queues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
