/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion channels: the descriptor as programs use it, arming, acknowledging, and what
 * destruction does to both. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>

#include "rig.h"

struct channel_rig {
    struct ibv_comp_channel *channel;
    struct rig rig;
};

static void setup(struct channel_rig *r)
{
    r->channel = ibv_create_comp_channel(rig_open());
    assert_non_null(r->channel);
    rig_setup(&r->rig, r->channel);
    rig_add_qp(&r->rig, NULL);
}

static void teardown(struct channel_rig *r)
{
    rig_teardown(&r->rig);
    struct ibv_context *ctx = r->channel->context;
    assert_int_equal(ibv_destroy_comp_channel(r->channel), 0);
    assert_int_equal(ibv_close_device(ctx), 0);
}

/* One message to oneself: two completions. */
static void exchange(struct rig *rig, unsigned int flags)
{
    struct ibv_sge from = rig_sge(rig, 0, 8), to = rig_sge(rig, 64, 8);
    assert_int_equal(rig_post_recv(rig->qp, 1, &to), 0);
    assert_int_equal(rig_post_send(rig->qp, 2, &from, flags), 0);
}

static void get_and_ack(struct channel_rig *r)
{
    struct ibv_cq *cq = NULL;
    void *cq_context = NULL;
    assert_int_equal(ibv_get_cq_event(r->channel, &cq, &cq_context), 0);
    assert_ptr_equal(cq, r->rig.cq);
    assert_ptr_equal(cq_context, &r->rig);
    ibv_ack_cq_events(cq, 1);
}

static void event__once_for_each_arming(void **state)
{
    (void)state;
    struct channel_rig r;
    struct ibv_wc wc[2];
    setup(&r);
    exchange(&r.rig, IBV_SEND_SIGNALED); /* not armed */
    rig_poll(r.rig.cq, 2, wc);
    assert_false(rig_readable(r.channel->fd, 0));

    assert_int_equal(ibv_req_notify_cq(r.rig.cq, 0), 0);
    assert_false(rig_readable(r.channel->fd, 0));
    exchange(&r.rig, IBV_SEND_SIGNALED);
    assert_true(rig_readable(r.channel->fd, 2000));
    get_and_ack(&r);
    assert_false(rig_readable(r.channel->fd, 0)); /* both completions, one event */
    rig_poll(r.rig.cq, 2, wc);
    exchange(&r.rig, IBV_SEND_SIGNALED); /* no longer armed */
    rig_poll(r.rig.cq, 2, wc);
    assert_false(rig_readable(r.channel->fd, 0));
    teardown(&r);
}

static void event__nonblocking_descriptor(void **state)
{
    (void)state;
    struct channel_rig r;
    struct ibv_cq *cq;
    void *cq_context;
    struct ibv_wc wc[2];
    setup(&r);
    const int flags = fcntl(r.channel->fd, F_GETFL);
    assert_int_equal(fcntl(r.channel->fd, F_SETFL, flags | O_NONBLOCK), 0);
    errno = 0;
    assert_int_equal(ibv_get_cq_event(r.channel, &cq, &cq_context), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(ibv_req_notify_cq(r.rig.cq, 0), 0);
    exchange(&r.rig, IBV_SEND_SIGNALED);
    rig_poll(r.rig.cq, 2, wc);
    get_and_ack(&r);
    assert_int_equal(ibv_get_cq_event(r.channel, &cq, &cq_context), -1);
    assert_int_equal(errno, EAGAIN);
    teardown(&r);
}

static void event__edge_triggered_epoll(void **state)
{
    (void)state;
    struct channel_rig r;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    struct ibv_wc wc[2];
    setup(&r);
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    assert_true(epoll >= 0);
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, r.channel->fd, &event), 0);
    for (int round = 0; round < 3; round++) { /* each event is an edge, fetched or not */
        assert_int_equal(ibv_req_notify_cq(r.rig.cq, 0), 0);
        exchange(&r.rig, IBV_SEND_SIGNALED);
        rig_poll(r.rig.cq, 2, wc);
        assert_int_equal(epoll_wait(epoll, &event, 1, 2000), 1);
        assert_int_equal(epoll_wait(epoll, &event, 1, 0), 0);
    }
    for (int round = 0; round < 3; round++)
        get_and_ack(&r);
    assert_false(rig_readable(r.channel->fd, 0));
    close(epoll);
    teardown(&r);
}

static void event__solicited_only(void **state)
{
    (void)state;
    struct channel_rig r;
    struct ibv_wc wc[2];
    setup(&r);
    assert_int_equal(ibv_req_notify_cq(r.rig.cq, 1), 0);
    exchange(&r.rig, IBV_SEND_SIGNALED);
    rig_poll(r.rig.cq, 2, wc);
    assert_false(rig_readable(r.channel->fd, 0));
    exchange(&r.rig, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
    assert_true(rig_readable(r.channel->fd, 2000));
    rig_poll(r.rig.cq, 2, wc);
    get_and_ack(&r);
    teardown(&r);
}

static atomic_int signals;

static void count_signal(int signal)
{
    (void)signal;
    signals++;
}

/* Not told by the handler: a sanitizer may put it off until the wait is over. */
static void *post_after_signal(void *arg)
{
    usleep(150000);
    exchange(arg, IBV_SEND_SIGNALED);
    return NULL;
}

static void raise_alarm_soon(int sa_flags)
{
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = sa_flags};
    struct itimerval timer = {.it_value = {.tv_usec = 30000}};
    signals = 0;
    sigemptyset(&action.sa_mask);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

static void event__wait_and_signals(void **state)
{
    (void)state;
    struct channel_rig r;
    struct ibv_cq *cq;
    void *cq_context;
    struct ibv_wc wc[2];
    pthread_t thread;
    sigset_t alarm_only;
    setup(&r);
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);

    raise_alarm_soon(0);
    errno = 0;
    assert_int_equal(ibv_get_cq_event(r.channel, &cq, &cq_context), -1);
    assert_int_equal(errno, EINTR);
    assert_int_equal(signals, 1);

    /* With SA_RESTART the wait goes on, as with the kernel's event files. */
    assert_int_equal(ibv_req_notify_cq(r.rig.cq, 0), 0);
    signals = 0;
    pthread_sigmask(SIG_BLOCK, &alarm_only, NULL); /* so that the thread does not take it */
    assert_int_equal(pthread_create(&thread, NULL, post_after_signal, &r.rig), 0);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    raise_alarm_soon(SA_RESTART);
    get_and_ack(&r);
    assert_int_equal(signals, 1);
    pthread_join(thread, NULL);
    rig_poll(r.rig.cq, 2, wc);
    teardown(&r);
}

static void channel__busy_while_used(void **state)
{
    (void)state;
    struct ibv_context *ctx = rig_open();
    struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
    assert_non_null(channel);
    struct ibv_cq *first = ibv_create_cq(ctx, 1, NULL, channel, 0);
    struct ibv_cq *second = ibv_create_cq(ctx, 1, NULL, channel, 0);
    assert_true(first && second);
    assert_int_equal(ibv_destroy_comp_channel(channel), EBUSY);
    assert_int_equal(ibv_destroy_cq(first), 0);
    assert_int_equal(ibv_destroy_comp_channel(channel), EBUSY);
    assert_int_equal(ibv_destroy_cq(second), 0);
    assert_int_equal(ibv_destroy_comp_channel(channel), 0);
    assert_int_equal(ibv_close_device(ctx), 0);
}

/* The events of a CQ go with it, and the channel is then not readable; those of another CQ stay. */
static void destroy_cq__takes_its_events_along(void **state)
{
    (void)state;
    struct channel_rig r;
    struct ibv_wc wc[2];
    setup(&r);
    struct ibv_cq *other = ibv_create_cq(r.rig.ctx, 8, NULL, r.channel, 0);
    assert_non_null(other);
    struct ibv_qp_init_attr attr = rig_qp_attr(other);
    struct rig second = r.rig;
    second.cq = other;
    second.qp = ibv_create_qp(r.rig.pd, &attr);
    assert_non_null(second.qp);
    rig_connect_self(&second, second.qp);

    for (int i = 0; i < 3; i++) { /* three events of one, one of the other in between */
        struct rig *from = i == 1 ? &second : &r.rig;
        for (int again = 0; again < (i == 2 ? 2 : 1); again++) {
            assert_int_equal(ibv_req_notify_cq(from->cq, 0), 0);
            exchange(from, IBV_SEND_SIGNALED);
            rig_poll(from->cq, 2, wc);
        }
    }
    assert_int_equal(ibv_destroy_qp(r.rig.qp), 0);
    assert_int_equal(ibv_destroy_cq(r.rig.cq), 0);

    struct ibv_cq *cq;
    void *cq_context;
    assert_true(rig_readable(r.channel->fd, 0));
    assert_int_equal(ibv_get_cq_event(r.channel, &cq, &cq_context), 0);
    assert_ptr_equal(cq, other);
    ibv_ack_cq_events(cq, 1);
    assert_false(rig_readable(r.channel->fd, 0));

    r.rig.qp = second.qp;
    r.rig.cq = other;
    teardown(&r);
}

static void *destroy_cq(void *cq)
{
    return ibv_destroy_cq(cq) ? cq : NULL;
}

static void destroy_cq__waits_for_acknowledgement(void **state)
{
    (void)state;
    struct channel_rig r;
    struct ibv_cq *cq;
    void *cq_context, *failed;
    pthread_t thread;
    struct ibv_wc wc[2];
    setup(&r);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ibv_req_notify_cq(r.rig.cq, 0), 0);
        exchange(&r.rig, IBV_SEND_SIGNALED);
        rig_poll(r.rig.cq, 2, wc);
        assert_int_equal(ibv_get_cq_event(r.channel, &cq, &cq_context), 0);
    }
    assert_int_equal(ibv_destroy_qp(r.rig.qp), 0);
    r.rig.qp = NULL;
    assert_int_equal(pthread_create(&thread, NULL, destroy_cq, cq), 0);
    usleep(50000);
    assert_int_equal(pthread_tryjoin_np(thread, &failed), EBUSY);
    ibv_ack_cq_events(cq, 1);
    usleep(50000);
    assert_int_equal(pthread_tryjoin_np(thread, &failed), EBUSY);
    ibv_ack_cq_events(cq, 1);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    r.rig.cq = NULL;
    assert_int_equal(ibv_destroy_comp_channel(r.channel), 0);
    rig_teardown(&r.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(event__once_for_each_arming),
        cmocka_unit_test(event__nonblocking_descriptor),
        cmocka_unit_test(event__edge_triggered_epoll),
        cmocka_unit_test(event__solicited_only),
        cmocka_unit_test(event__wait_and_signals),
        cmocka_unit_test(channel__busy_while_used),
        cmocka_unit_test(destroy_cq__takes_its_events_along),
        cmocka_unit_test(destroy_cq__waits_for_acknowledgement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
