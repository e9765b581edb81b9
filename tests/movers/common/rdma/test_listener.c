/* SPDX-License-Identifier: BSD-2-Clause */
/* A listener whose address goes, moves and comes back, over an rdma_cm that the tests play. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/rdma/listener.h"

/* ---- rdma_cm ---- */

enum { PORT = 4430 };

static struct ibv_context devices[2];
static struct ibv_context *device;    /* that has the address */
static int port_errno, address_errno; /* of a bind, and of one without a port */
static int ids;

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                   enum rdma_port_space space)
{
    (void)channel;
    *id = calloc(1, sizeof(**id));
    assert_non_null(*id);
    (*id)->context = context;
    (*id)->ps = space;
    ids++;
    return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
    free(id);
    ids--;
    return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
    errno = ((struct sockaddr_in *)address)->sin_port ? port_errno : address_errno;
    id->verbs = device;
    return errno ? -1 : 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
    (void)id;
    (void)backlog;
    return 0;
}

uint16_t rdma_get_src_port(struct rdma_cm_id *id)
{
    (void)id;
    return htons(PORT);
}

static struct rdma_cm_event *coming;

struct rdma_event_channel *rdma_create_event_channel(void)
{
    struct rdma_event_channel *made = calloc(1, sizeof(*made));
    assert_non_null(made);
    made->fd = eventfd(0, EFD_CLOEXEC);
    return made;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
    close(channel->fd);
    free(channel);
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
    (void)channel;
    *event = coming;
    coming = NULL;
    errno = EAGAIN;
    return *event ? 0 : -1;
}

/* Nobody may look at the event afterwards, nor at what it has brought. */
int rdma_ack_cm_event(struct rdma_cm_event *event)
{
    free((void *)(uintptr_t)event->param.conn.private_data);
    free(event);
    return 0;
}

/* ---- what its owner hears ---- */

static struct mover_listener listener;
static char said[MOVER_LISTENER_SAID];
static int told;

static void note_change(struct mover_listener *changed)
{
    told++;
    mover_listener_say(changed, said);
}

static int start(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    told = 0;
    listener = (struct mover_listener){.timer_fd = mover_listener_timer(), .changed = note_change};
    return mover_listener_open(&listener, (struct sockaddr *)&address);
}

static void take(enum rdma_cm_event_type type)
{
    const struct mover_arrival arrival = {.type = type, .id = listener.id};
    assert_true(mover_listener_take(&listener, &arrival));
}

/* As if the time had come. */
static void tick(void)
{
    listener.retry_ns = 0;
    mover_listener_tick(&listener);
}

static void says(const char *word)
{
    if (!strstr(said, word))
        fail_msg("\"%s\" is not said in \"%s\"", word, said);
}

static int set_up(void **state)
{
    (void)state;
    device = &devices[0];
    port_errno = address_errno = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mover_listener_close(&listener);
    close(listener.timer_fd);
    return ids;
}

/* ---- tests ---- */

static void change__to_another_device_is_told(void **state)
{
    (void)state;
    assert_int_equal(start(), 0);
    take(RDMA_CM_EVENT_ADDR_CHANGE);
    assert_int_equal(told, 0); /* nobody has to know */
    device = &devices[1];
    take(RDMA_CM_EVENT_ADDR_CHANGE);
    assert_int_equal(told, 1);
    assert_ptr_equal(listener.id->verbs, device);
    says("listens at 127.0.0.1 port 4430 again");
}

static void loss__says_when_somebody_has_the_port_by_now(void **state)
{
    (void)state;
    assert_int_equal(start(), 0);
    take(RDMA_CM_EVENT_DEVICE_REMOVAL);
    says("is gone");
    port_errno = address_errno = EADDRNOTAVAIL;
    tick();
    assert_int_equal(told, 1); /* it is away still */
    port_errno = EADDRINUSE;
    address_errno = 0;
    for (int i = 0; i < 3; i++)
        tick();
    assert_int_equal(told, 2); /* once */
    says("in use");
    says("another port");
    port_errno = 0;
    tick();
    assert_int_equal(told, 3);
    says("again");
    assert_non_null(listener.id);
}

static void open__names_a_port_that_is_taken(void **state)
{
    (void)state;
    port_errno = EADDRNOTAVAIL; /* somebody has it at all addresses, or one of all */
    assert_int_equal(start(), -EADDRINUSE);
    address_errno = EADDRNOTAVAIL;
    assert_int_equal(start(), -EADDRNOTAVAIL);
}

static struct rdma_cm_event *event_of(enum rdma_cm_event_type type, struct rdma_cm_id *id,
                                      const char *private_data, size_t bytes)
{
    struct rdma_cm_event *event = calloc(1, sizeof(*event));
    assert_non_null(event);
    event->event = type;
    event->id = id;
    event->listen_id = listener.id;
    event->param.conn.private_data_len = (uint8_t)bytes;
    event->param.conn.initiator_depth = 5;
    if (private_data) {
        void *copy = malloc(bytes);
        assert_non_null(copy);
        event->param.conn.private_data = memcpy(copy, private_data, bytes);
    }
    return event;
}

static void next__keeps_what_a_request_brought(void **state)
{
    struct rdma_event_channel *events = mover_listener_events();
    struct rdma_cm_id asks = {.context = NULL};
    struct mover_arrival arrival;
    char longest[UINT8_MAX];
    (void)state;
    assert_non_null(events);
    assert_true(fcntl(events->fd, F_GETFL) & O_NONBLOCK);
    assert_int_equal(start(), 0);
    memset(longest, 'x', sizeof(longest));
    coming = event_of(RDMA_CM_EVENT_CONNECT_REQUEST, &asks, longest, sizeof(longest));
    assert_true(mover_listener_next(events, &arrival));
    assert_ptr_equal(arrival.id, &asks);
    assert_ptr_equal(arrival.listen_id, listener.id);
    assert_int_equal(arrival.param.initiator_depth, 5);
    assert_int_equal(arrival.param.private_data_len, sizeof(longest));
    assert_ptr_equal(arrival.param.private_data, arrival.private_data);
    assert_memory_equal(arrival.private_data, longest, sizeof(longest));
    assert_false(mover_listener_take(&listener, &arrival));
    assert_false(mover_listener_next(events, &arrival));
    rdma_destroy_event_channel(events);
}

static void next__brings_nothing_where_nothing_was_said(void **state)
{
    struct rdma_event_channel *events = mover_listener_events();
    struct rdma_cm_id asks = {.context = NULL};
    struct mover_arrival arrival;
    (void)state;
    assert_non_null(events);
    assert_int_equal(start(), 0);
    coming = event_of(RDMA_CM_EVENT_CONNECT_REQUEST, &asks, NULL, 8); /* of a length, and no data */
    assert_true(mover_listener_next(events, &arrival));
    assert_null(arrival.param.private_data);
    assert_int_equal(arrival.param.private_data_len, 0);
    coming = event_of(RDMA_CM_EVENT_DEVICE_REMOVAL, listener.id, NULL, 0);
    assert_true(mover_listener_next(events, &arrival));
    assert_true(mover_listener_take(&listener, &arrival));
    assert_null(listener.id);
    rdma_destroy_event_channel(events);
}

static void timer__is_due_once(void **state)
{
    (void)state;
    assert_int_equal(start(), 0);
    assert_false(mover_listener_is_due(listener.timer_fd));
    take(RDMA_CM_EVENT_DEVICE_REMOVAL);
    struct pollfd waits = {.fd = listener.timer_fd, .events = POLLIN};
    assert_int_equal(poll(&waits, 1, -1), 1);
    assert_true(mover_listener_is_due(listener.timer_fd));
    assert_false(mover_listener_is_due(listener.timer_fd));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(change__to_another_device_is_told),
        CASE(loss__says_when_somebody_has_the_port_by_now),
        CASE(open__names_a_port_that_is_taken),
        CASE(next__keeps_what_a_request_brought),
        CASE(next__brings_nothing_where_nothing_was_said),
        CASE(timer__is_due_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
