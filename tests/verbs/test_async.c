/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous events: delivery, the descriptor, acknowledging, and what destruction does to them.
 */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"

struct srq_rig {
    struct rig rig;
    struct ibv_srq *srq;
};

static void setup(struct srq_rig *r)
{
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 1}};
    rig_setup(&r->rig, NULL);
    r->srq = ibv_create_srq(r->rig.pd, &init);
    assert_non_null(r->srq);
    rig_add_qp(&r->rig, r->srq);
}

static void teardown(struct srq_rig *r)
{
    assert_int_equal(ibv_destroy_qp(r->rig.qp), 0);
    r->rig.qp = NULL;
    if (r->srq)
        assert_int_equal(ibv_destroy_srq(r->srq), 0);
    rig_teardown(&r->rig);
}

/* Arms the limit at two receives with two posted, and consumes one of them: one event. */
static void reach_limit(struct srq_rig *r)
{
    struct ibv_sge to = rig_sge(&r->rig, 64, 8), from = rig_sge(&r->rig, 0, 8);
    struct ibv_srq_attr attr = {.srq_limit = 2};
    struct ibv_recv_wr wr = {.sg_list = &to, .num_sge = 1}, *bad;
    struct ibv_wc wc[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(ibv_post_srq_recv(r->srq, &wr, &bad), 0);
    assert_int_equal(ibv_modify_srq(r->srq, &attr, IBV_SRQ_LIMIT), 0);
    assert_int_equal(rig_post_send(r->rig.qp, 1, &from, IBV_SEND_SIGNALED), 0);
    rig_poll(r->rig.cq, 2, wc);
    assert_true(rig_readable(r->rig.ctx->async_fd, 2000));
    /* Drain what is left of the receives, so that this can be done again. */
    assert_int_equal(rig_post_send(r->rig.qp, 1, &from, IBV_SEND_SIGNALED), 0);
    rig_poll(r->rig.cq, 2, wc);
}

static void srq_limit__fires_once(void **state)
{
    (void)state;
    struct srq_rig r;
    struct ibv_async_event event;
    setup(&r);
    assert_false(rig_readable(r.rig.ctx->async_fd, 0));
    reach_limit(&r);
    assert_int_equal(ibv_get_async_event(r.rig.ctx, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    assert_ptr_equal(event.element.srq, r.srq);
    ibv_ack_async_event(&event);
    assert_false(rig_readable(r.rig.ctx->async_fd, 50));
    teardown(&r);
}

static void async_fd__nonblocking(void **state)
{
    (void)state;
    struct srq_rig r;
    struct ibv_async_event event;
    setup(&r);
    const int flags = fcntl(r.rig.ctx->async_fd, F_GETFL);
    assert_int_equal(fcntl(r.rig.ctx->async_fd, F_SETFL, flags | O_NONBLOCK), 0);
    errno = 0;
    assert_int_equal(ibv_get_async_event(r.rig.ctx, &event), -1);
    assert_int_equal(errno, EAGAIN);
    reach_limit(&r);
    assert_int_equal(ibv_get_async_event(r.rig.ctx, &event), 0);
    ibv_ack_async_event(&event);
    assert_int_equal(ibv_get_async_event(r.rig.ctx, &event), -1);
    teardown(&r);
}

static void last_wqe__when_a_qp_with_srq_dies(void **state)
{
    (void)state;
    struct srq_rig r;
    struct ibv_async_event event;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    setup(&r);
    assert_int_equal(ibv_modify_qp(r.rig.qp, &attr, IBV_QP_STATE), 0);
    assert_true(rig_readable(r.rig.ctx->async_fd, 2000));
    assert_int_equal(ibv_get_async_event(r.rig.ctx, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    assert_ptr_equal(event.element.qp, r.rig.qp);
    ibv_ack_async_event(&event);
    teardown(&r);
}

static void destroy__takes_queued_events_along(void **state)
{
    (void)state;
    struct srq_rig r;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    setup(&r);
    reach_limit(&r);
    reach_limit(&r);
    assert_int_equal(ibv_modify_qp(r.rig.qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(ibv_destroy_qp(r.rig.qp), 0);
    assert_true(rig_readable(r.rig.ctx->async_fd, 0)); /* the SRQ's */
    assert_int_equal(ibv_destroy_srq(r.srq), 0);
    assert_false(rig_readable(r.rig.ctx->async_fd, 0));
    r.rig.qp = NULL;
    rig_teardown(&r.rig);
}

static void *destroy_qp(void *qp)
{
    return ibv_destroy_qp(qp) ? qp : NULL;
}

static void destroy_qp__waits_for_acknowledgement(void **state)
{
    (void)state;
    struct srq_rig r;
    struct ibv_async_event event;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    pthread_t thread;
    void *failed;
    setup(&r);
    assert_int_equal(ibv_modify_qp(r.rig.qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(ibv_get_async_event(r.rig.ctx, &event), 0);
    assert_ptr_equal(event.element.qp, r.rig.qp);
    assert_int_equal(pthread_create(&thread, NULL, destroy_qp, r.rig.qp), 0);
    usleep(50000);
    assert_int_equal(pthread_tryjoin_np(thread, &failed), EBUSY);
    ibv_ack_async_event(&event);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(ibv_destroy_srq(r.srq), 0);
    r.rig.qp = NULL;
    rig_teardown(&r.rig);
}

static void ack__of_a_port_event(void **state)
{
    (void)state;
    struct ibv_async_event event = {.element.port_num = 1, .event_type = IBV_EVENT_GID_CHANGE};
    ibv_ack_async_event(&event); /* names no object: nothing to look at */
    event.event_type = (enum ibv_event_type)99;
    ibv_ack_async_event(&event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(srq_limit__fires_once),
        cmocka_unit_test(async_fd__nonblocking),
        cmocka_unit_test(last_wqe__when_a_qp_with_srq_dies),
        cmocka_unit_test(destroy__takes_queued_events_along),
        cmocka_unit_test(destroy_qp__waits_for_acknowledgement),
        cmocka_unit_test(ack__of_a_port_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
