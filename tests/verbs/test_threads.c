/* SPDX-License-Identifier: BSD-2-Clause */
/* The verbs layer from many threads at once: shared channel, shared extended CQ, creation beside
 * destruction. For TSan above all. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "rig.h"

enum { THREADS = 4, ROUNDS = 20, ROUNDS_MAX = 20000, EVENTS = 50, MESSAGES = 400 };

struct crowd {
    struct ibv_comp_channel *channel;
    atomic_int events;
    atomic_bool done;
};

static void *live_and_die(void *arg)
{
    struct crowd *crowd = arg;
    for (int round = 0;
         round < ROUNDS || (round < ROUNDS_MAX && atomic_load(&crowd->events) < EVENTS); round++) {
        struct rig rig;
        struct ibv_wc wc[2];
        rig_setup(&rig, crowd->channel);
        rig_add_qp(&rig, NULL);
        struct ibv_sge from = rig_sge(&rig, 0, 8), to = rig_sge(&rig, 64, 8);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(ibv_req_notify_cq(rig.cq, 0), 0);
            assert_int_equal(rig_post_recv(rig.qp, 1, &to), 0);
            assert_int_equal(rig_post_send(rig.qp, 2, &from, IBV_SEND_SIGNALED), 0);
            rig_poll(rig.cq, 2, wc);
        }
        rig_teardown(&rig); /* takes along the events that nobody fetched, waits for the others */
    }
    return NULL;
}

static void *fetch_events(void *arg)
{
    struct crowd *crowd = arg;
    while (!atomic_load(&crowd->done)) {
        struct ibv_cq *cq;
        void *cq_context;
        if (!rig_readable(crowd->channel->fd, 10) ||
            ibv_get_cq_event(crowd->channel, &cq, &cq_context))
            continue;
        atomic_fetch_add(&crowd->events, 1);
        ibv_ack_cq_events(cq, 1);
    }
    return NULL;
}

static void *list_devices(void *arg)
{
    struct crowd *crowd = arg;
    while (!atomic_load(&crowd->done)) {
        struct ibv_device **list = ibv_get_device_list(NULL);
        assert_non_null(list);
        ibv_free_device_list(list);
        usleep(1000);
    }
    return NULL;
}

static void channel__shared_by_threads(void **state)
{
    (void)state;
    struct crowd crowd = {.channel = ibv_create_comp_channel(rig_open())};
    pthread_t workers[THREADS], fetchers[2], lister;
    assert_non_null(crowd.channel);
    struct ibv_context *ctx = crowd.channel->context;
    const int flags = fcntl(crowd.channel->fd, F_GETFL);
    assert_int_equal(fcntl(crowd.channel->fd, F_SETFL, flags | O_NONBLOCK), 0);

    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&fetchers[i], NULL, fetch_events, &crowd), 0);
    assert_int_equal(pthread_create(&lister, NULL, list_devices, &crowd), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&workers[i], NULL, live_and_die, &crowd), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(workers[i], NULL), 0);
    assert_false(rig_readable(crowd.channel->fd, 0)); /* no count left behind */
    atomic_store(&crowd.done, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(fetchers[i], NULL), 0);
    assert_int_equal(pthread_join(lister, NULL), 0);
    assert_true(atomic_load(&crowd.events) >= EVENTS);
    assert_int_equal(ibv_destroy_comp_channel(crowd.channel), 0);
    assert_int_equal(ibv_close_device(ctx), 0);
}

struct pollers {
    struct ibv_cq_ex *ex;
    atomic_int seen[MESSAGES];
    atomic_int total;
};

static void note(struct pollers *pollers, uint64_t wr_id, enum ibv_wc_status status)
{
    assert_int_equal(status, IBV_WC_SUCCESS);
    assert_true(wr_id < MESSAGES);
    atomic_fetch_add(&pollers->seen[wr_id], 1);
    atomic_fetch_add(&pollers->total, 1);
}

/* Every other look by the cursor, the rest by ibv_poll_cq. */
static void *poll_both_ways(void *arg)
{
    struct pollers *pollers = arg;
    struct ibv_poll_cq_attr attr = {0};
    for (unsigned int turn = 0; atomic_load(&pollers->total) < MESSAGES; turn++) {
        struct ibv_wc wc[3];
        if (turn % 2) {
            const int n = ibv_poll_cq(ibv_cq_ex_to_cq(pollers->ex), 3, wc);
            for (int i = 0; i < n; i++)
                note(pollers, wc[i].wr_id, wc[i].status);
        } else if (!ibv_start_poll(pollers->ex, &attr)) {
            do
                note(pollers, pollers->ex->wr_id, pollers->ex->status);
            while (turn % 4 && !ibv_next_poll(pollers->ex));
            ibv_end_poll(pollers->ex);
        }
    }
    return NULL;
}

static void cq_ex__polled_by_threads(void **state)
{
    (void)state;
    static struct pollers pollers;
    struct rig rig;
    struct ibv_cq_init_attr_ex attr = {.cqe = 512, .wc_flags = IBV_WC_STANDARD_FLAGS};
    pthread_t threads[2];
    rig_setup(&rig, NULL);
    assert_int_equal(ibv_destroy_cq(rig.cq), 0);
    pollers.ex = ibv_create_cq_ex(rig.ctx, &attr);
    assert_non_null(pollers.ex);
    rig.cq = ibv_cq_ex_to_cq(pollers.ex);
    rig_add_qp(&rig, NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, poll_both_ways, &pollers), 0);
    for (unsigned int i = 0; i < MESSAGES; i++) {
        struct ibv_sge sge = rig_sge(&rig, 0, 8);
        struct ibv_send_wr wr = {.wr_id = i,
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.rdma = {(uintptr_t)rig.buf + 1024, rig.mr->rkey}},
                           *bad;
        while (ibv_post_send(rig.qp, &wr, &bad) == ENOMEM)
            usleep(10);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < MESSAGES; i++)
        assert_int_equal(atomic_load(&pollers.seen[i]), 1);
    rig_teardown(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channel__shared_by_threads),
        cmocka_unit_test(cq_ex__polled_by_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
