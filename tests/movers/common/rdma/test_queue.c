/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue whose completions come at any time, over verbs that the tests play. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/rdma/queue.h"

/* ---- the device ---- */

enum { ROOM = 8 };

static struct ibv_context device;
static int channel_errno, cq_errno, qp_errno, notify_errno;
static struct ibv_wc completions[ROOM]; /* that nobody has polled */
static uint32_t completions_count, alive;
static bool is_armed, has_failed;
static uint32_t channel_events, acknowledged;
static struct ibv_qp_init_attr made_with;
static char steps[32];   /* of the owner, a letter each */
static int comes_before; /* that step, counted from 0, a completion comes */

static void completes(uint64_t wr_id)
{
    assert_true(completions_count < ROOM);
    completions[completions_count++] = (struct ibv_wc){.wr_id = wr_id, .byte_len = 7};
    channel_events += is_armed;
    is_armed = false;
}

static void note_step(char step)
{
    const size_t len = strlen(steps);
    assert_true(len + 1 < sizeof(steps));
    if ((int)len == comes_before)
        completes(100 + len);
    steps[len] = step;
    steps[len + 1] = 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    errno = channel_errno;
    if (channel_errno)
        return NULL;
    struct ibv_comp_channel *made = calloc(1, sizeof(*made));
    assert_non_null(made);
    made->context = context;
    made->fd = eventfd(0, EFD_CLOEXEC);
    alive++;
    return made;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    note_step('w');
    close(channel->fd);
    free(channel);
    alive--;
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int comp_vector)
{
    errno = cq_errno;
    if (cq_errno)
        return NULL;
    struct ibv_cq *made = calloc(1, sizeof(*made));
    assert_non_null(made);
    assert_int_equal(comp_vector, 0);
    made->context = context;
    made->cqe = cqe;
    made->cq_context = cq_context;
    made->channel = channel;
    alive++;
    return made;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    assert_int_equal(channel_events, 0); /* verbs would wait for them for ever */
    note_step('c');
    free(cq);
    alive--;
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
    (void)channel;
    (void)cq;
    (void)context;
    if (channel_events) {
        channel_events--;
        return 0;
    }
    note_step('d');
    errno = EAGAIN;
    return -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    assert_non_null(cq);
    acknowledged += count;
}

static int notify_cq(struct ibv_cq *cq, int solicited_only)
{
    assert_non_null(cq);
    assert_int_equal(solicited_only, 0);
    note_step('n');
    is_armed = !notify_errno;
    return notify_errno;
}

static int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wcs)
{
    int found = 0;
    assert_non_null(cq);
    note_step('p');
    if (has_failed)
        return -1;
    for (; found < count && (uint32_t)found < completions_count; found++)
        wcs[found] = completions[found];
    completions_count -= (uint32_t)found;
    memmove(completions, completions + found, completions_count * sizeof(*completions));
    return found;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    assert_non_null(id);
    assert_non_null(pd);
    made_with = *attr;
    errno = qp_errno;
    return qp_errno ? -1 : 0;
}

/* ---- its owner ---- */

static struct mover_queue queue;
static struct ibv_wc wcs[ROOM];
static int epoll_fd, owner;

static int set_up(void **state)
{
    (void)state;
    device = (struct ibv_context){.ops = {.poll_cq = poll_cq, .req_notify_cq = notify_cq}};
    channel_errno = cq_errno = qp_errno = notify_errno = 0;
    completions_count = alive = channel_events = acknowledged = 0;
    is_armed = has_failed = false;
    comes_before = -1;
    queue = (struct mover_queue){.cq = NULL};
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    *steps = 0;
    return epoll_fd < 0;
}

static int tear_down(void **state)
{
    (void)state;
    *steps = 0;
    mover_queue_close(&queue);
    close(epoll_fd);
    return alive != 0;
}

static void open_queue(void)
{
    assert_true(mover_queue_open(&queue, &device, ROOM, epoll_fd, &owner));
    *steps = 0;
}

static void polls(int count, uint64_t first)
{
    assert_int_equal(mover_queue_poll(&queue, ROOM, wcs), count);
    for (int i = 0; i < count; i++)
        assert_int_equal(wcs[i].wr_id, first + (uint64_t)i);
}

/* ---- */

static void open__is_armed_and_wakes_the_owner_of_the_epoll(void **state)
{
    struct epoll_event event;
    (void)state;
    open_queue();
    assert_true(is_armed);
    assert_int_equal(queue.cq->cqe, ROOM);
    assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 0);
    assert_int_equal(eventfd_write(queue.channel->fd, 1), 0);
    assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 1);
    assert_ptr_equal(event.data.ptr, &owner);
}

static void open__says_why_it_fails_and_can_be_closed(void **state)
{
    int *const faults[] = {&channel_errno, &cq_errno, &notify_errno};
    (void)state;
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        *faults[i] = ENOMEM;
        errno = 0;
        assert_false(mover_queue_open(&queue, &device, ROOM, epoll_fd, &owner));
        assert_int_equal(errno, ENOMEM);
        mover_queue_close(&queue);
        assert_int_equal(alive, 0);
        *faults[i] = 0;
    }
}

static void make_qp__has_its_completions_in_the_queue(void **state)
{
    struct rdma_cm_id id = {.verbs = &device};
    struct ibv_pd pd = {.context = &device};
    const struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 3, .max_recv_wr = 4},
                                          .sq_sig_all = 1};
    (void)state;
    open_queue();
    assert_true(mover_queue_make_qp(&queue, &id, &pd, &attr));
    assert_ptr_equal(made_with.send_cq, queue.cq);
    assert_ptr_equal(made_with.recv_cq, queue.cq);
    assert_int_equal(made_with.qp_type, IBV_QPT_RC);
    assert_int_equal(made_with.cap.max_send_wr, 3);
    assert_int_equal(made_with.sq_sig_all, 1);
    qp_errno = EINVAL;
    assert_false(mover_queue_make_qp(&queue, &id, &pd, &attr));
    assert_int_equal(errno, EINVAL);
}

static void poll__gives_what_the_device_gives(void **state)
{
    (void)state;
    polls(0, 0); /* of a queue that is not open */
    assert_string_equal(steps, "");
    open_queue();
    polls(0, 0);
    completes(1);
    completes(2);
    polls(2, 1);
    has_failed = true;
    polls(-1, 0);
}

static void arm__keeps_what_it_finds_for_the_next_poll(void **state)
{
    (void)state;
    open_queue();
    for (uint64_t wr_id = 1; wr_id <= 4; wr_id++)
        completes(wr_id);
    assert_false(mover_queue_arm(&queue));
    assert_int_equal(mover_queue_poll(&queue, 1, wcs), 1);
    assert_int_equal(wcs[0].wr_id, 1);
    assert_int_equal(wcs[0].byte_len, 7);
    assert_false(mover_queue_arm(&queue));
    polls(3, 2);
    polls(0, 0);
}

static void arm__loses_nothing_when_it_is_asked_twice(void **state)
{
    (void)state;
    open_queue();
    completes(1);
    completes(2);
    assert_false(mover_queue_arm(&queue));
    assert_false(mover_queue_arm(&queue));
    has_failed = true; /* what was polled before counts all the same */
    polls(1, 1);
    polls(-1, 0);
    has_failed = false;
    polls(1, 2);
    assert_true(mover_queue_arm(&queue));
}

static void arm__takes_all_events_before_it_asks_for_one(void **state)
{
    (void)state;
    open_queue();
    completes(1);
    polls(1, 1);
    *steps = 0;
    assert_true(mover_queue_arm(&queue));
    assert_string_equal(steps, "dnp");
    assert_int_equal(channel_events, 0);
}

static void arm__lets_nobody_sleep_over_a_completion(void **state)
{
    (void)state;
    for (int when = 0; when < 4; when++) {
        open_queue();
        comes_before = when;
        const bool may_sleep = mover_queue_arm(&queue);
        if (!completions_count && !queue.has_stash)
            completes(100 + (uint64_t)when);
        comes_before = -1;
        assert_true(!may_sleep || channel_events);
        polls(1, 100 + (uint64_t)when);
        *steps = 0;
        mover_queue_close(&queue);
    }
}

static void arm__keeps_its_owner_awake_where_the_device_refuses(void **state)
{
    (void)state;
    assert_true(mover_queue_arm(&queue)); /* not open: nothing will come */
    open_queue();
    notify_errno = EIO;
    assert_false(mover_queue_arm(&queue));
    assert_int_equal(errno, EIO);
    assert_false(mover_queue_rearm(&queue));
    assert_int_equal(errno, EIO);
}

static void rearm__leaves_completions_to_the_poll(void **state)
{
    (void)state;
    for (int when = 0; when < 3; when++) {
        open_queue();
        comes_before = when;
        assert_true(mover_queue_rearm(&queue));
        assert_false(queue.has_stash);
        polls(1, 100 + (uint64_t)when); /* before, amid, or behind it */
        comes_before = -1;
        *steps = 0;
        mover_queue_close(&queue);
    }
}

static void close__acknowledges_all_events_and_forgets_the_stash(void **state)
{
    (void)state;
    open_queue();
    completes(1);
    assert_false(mover_queue_arm(&queue)); /* takes the first event */
    completes(2);
    *steps = 0;
    mover_queue_close(&queue);
    assert_int_equal(acknowledged, 2);
    assert_string_equal(steps, "dcw");
    polls(0, 0);
    mover_queue_close(&queue); /* of nothing */
    assert_string_equal(steps, "dcw");
}

/* ---- requests ---- */

static int posted_errno;
static struct ibv_sge posted;
static struct ibv_send_wr sent;

static int take_receive(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    assert_non_null(qp);
    assert_int_equal(wr->num_sge, 1);
    assert_null(wr->next);
    posted = *wr->sg_list;
    sent.wr_id = wr->wr_id;
    *bad = wr;
    return posted_errno;
}

static int take_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    assert_non_null(qp);
    assert_int_equal(wr->num_sge, 1);
    posted = *wr->sg_list;
    sent = *wr;
    *bad = wr;
    return posted_errno;
}

static void post__hands_the_bytes_to_the_device(void **state)
{
    char bytes[5];
    struct ibv_qp qp = {.context = &device};
    (void)state;
    device.ops.post_recv = take_receive;
    device.ops.post_send = take_send;
    posted_errno = 0;
    assert_true(mover_post_receive(&qp, 11, bytes, sizeof(bytes), 9));
    assert_int_equal(sent.wr_id, 11);
    assert_int_equal(posted.addr, (uintptr_t)bytes);
    assert_int_equal(posted.length, sizeof(bytes));
    assert_int_equal(posted.lkey, 9);
    assert_true(mover_post_send(&qp, 12, bytes + 1, 3, 8, IBV_SEND_SIGNALED));
    assert_int_equal(sent.wr_id, 12);
    assert_int_equal(sent.opcode, IBV_WR_SEND);
    assert_int_equal(sent.send_flags, IBV_SEND_SIGNALED);
    assert_null(sent.next);
    assert_int_equal(posted.addr, (uintptr_t)bytes + 1);
    assert_int_equal(posted.length, 3);
    assert_int_equal(posted.lkey, 8);
    posted_errno = ENOMEM;
    assert_false(mover_post_receive(&qp, 0, bytes, 1, 0));
    assert_false(mover_post_send(&qp, 0, bytes, 1, 0, 0));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(open__is_armed_and_wakes_the_owner_of_the_epoll),
        CASE(open__says_why_it_fails_and_can_be_closed),
        CASE(make_qp__has_its_completions_in_the_queue),
        CASE(poll__gives_what_the_device_gives),
        CASE(arm__keeps_what_it_finds_for_the_next_poll),
        CASE(arm__loses_nothing_when_it_is_asked_twice),
        CASE(arm__takes_all_events_before_it_asks_for_one),
        CASE(arm__lets_nobody_sleep_over_a_completion),
        CASE(arm__keeps_its_owner_awake_where_the_device_refuses),
        CASE(rearm__leaves_completions_to_the_poll),
        CASE(close__acknowledges_all_events_and_forgets_the_stash),
        CASE(post__hands_the_bytes_to_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
