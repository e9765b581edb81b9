/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection that comes up, fails and ends, over an rdma_cm and verbs that the tests play. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/rdma/connection.h"

/* ---- rdma_cm ---- */

enum { EVENTS_MAX = 4 };

static struct ibv_context device;
static int channel_errno, id_errno, address_errno, route_errno;
static int event_errno; /* that librdmacm leaves behind when it gives an event */
static struct rdma_cm_event *events[EVENTS_MAX]; /* to come */
static uint32_t events_count, unacknowledged, alive;
static char steps[64]; /* of the end, a letter each */

static int result_of(int code)
{
    errno = code;
    return code ? -1 : 0;
}

static void note_step(char step)
{
    const size_t len = strlen(steps);
    assert_true(len + 1 < sizeof(steps));
    steps[len] = step;
    steps[len + 1] = 0;
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
    if (result_of(channel_errno))
        return NULL;
    struct rdma_event_channel *made = calloc(1, sizeof(*made));
    assert_non_null(made);
    made->fd = eventfd(0, EFD_CLOEXEC);
    alive++;
    return made;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
    note_step('e');
    close(channel->fd);
    free(channel);
    alive--;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                   enum rdma_port_space space)
{
    if (result_of(id_errno))
        return -1;
    *id = calloc(1, sizeof(**id));
    assert_non_null(*id);
    (*id)->channel = channel;
    (*id)->context = context;
    (*id)->ps = space;
    (*id)->verbs = &device;
    alive++;
    return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
    assert_int_equal(unacknowledged, 0); /* rdma_cm would wait for ever */
    note_step('i');
    free(id);
    alive--;
    return 0;
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
    id->channel = channel;
    return result_of(id_errno);
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int ms)
{
    (void)id;
    (void)from;
    (void)to;
    (void)ms;
    return result_of(address_errno);
}

int rdma_resolve_route(struct rdma_cm_id *id, int ms)
{
    (void)id;
    (void)ms;
    return result_of(route_errno);
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
    (void)channel;
    if (!events_count)
        return result_of(EAGAIN);
    *event = events[0];
    memmove(events, events + 1, --events_count * sizeof(*events));
    unacknowledged++;
    if (event_errno)
        errno = event_errno;
    return 0;
}

/* Nobody may look at the event afterwards, nor at what it has brought. */
int rdma_ack_cm_event(struct rdma_cm_event *event)
{
    free((void *)(uintptr_t)event->param.conn.private_data);
    free(event);
    unacknowledged--;
    return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
    (void)id;
    note_step('d');
    return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
    id->qp = NULL;
    note_step('q');
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    (void)id;
    (void)pd;
    (void)attr;
    fail(); /* the owner's */
    return -1;
}

/* ---- verbs ---- */

static uint32_t completion_events, completion_events_acknowledged;

static int arm_cq(struct ibv_cq *cq, int solicited_only)
{
    (void)cq;
    (void)solicited_only;
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
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
    struct ibv_cq *made = calloc(1, sizeof(*made));
    assert_non_null(made);
    (void)comp_vector;
    made->context = context;
    made->cqe = cqe;
    made->cq_context = cq_context;
    made->channel = channel;
    alive++;
    return made;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
    (void)channel;
    (void)cq;
    (void)context;
    if (!completion_events)
        return result_of(EAGAIN);
    completion_events--;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    (void)cq;
    completion_events_acknowledged += count;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    note_step('c');
    free(cq);
    alive--;
    return 0;
}

/* ---- its owner ---- */

static struct mover_connection connection;
static int epoll_fd;
static char said[MOVER_CONNECTION_SAID];

static enum mover_event start(void)
{
    const struct sockaddr_in to = {.sin_family = AF_INET};
    return mover_connection_start(&connection, epoll_fd, NULL, NULL, (const struct sockaddr *)&to);
}

static void comes_with(enum rdma_cm_event_type type, int status, const char *private_data)
{
    struct rdma_cm_event *event = calloc(1, sizeof(*event));
    assert_non_null(event);
    assert_true(events_count < EVENTS_MAX);
    event->event = type;
    event->status = status;
    if (private_data) {
        event->param.conn.private_data = strdup(private_data);
        event->param.conn.private_data_len = (uint8_t)(strlen(private_data) + 1);
    }
    events[events_count++] = event;
}

static void comes(enum rdma_cm_event_type type, int status)
{
    comes_with(type, status, NULL);
}

static void gets(enum mover_event expected)
{
    assert_int_equal(mover_connection_next(&connection), expected);
}

static void says(enum mover_event event, const char *expected)
{
    mover_connection_say(&connection, event, "there", said);
    assert_string_equal(said, expected);
}

static int set_up(void **state)
{
    (void)state;
    static const struct ibv_context plain = {.ops = {.req_notify_cq = arm_cq}};
    device = plain;
    channel_errno = id_errno = address_errno = route_errno = event_errno = 0;
    completion_events = completion_events_acknowledged = 0;
    *steps = 0;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    connection = (struct mover_connection){.epoll_fd = -1};
    return epoll_fd < 0;
}

static int tear_down(void **state)
{
    (void)state;
    mover_connection_destroy(&connection);
    close(epoll_fd);
    return (int)(alive + unacknowledged + events_count);
}

/* ---- tests ---- */

static void start__tells_what_this_host_lacks(void **state)
{
    (void)state;
    channel_errno = ENODEV;
    assert_int_equal(start(), MOVER_NO_RDMA);
    says(MOVER_NO_RDMA, "there is no RDMA device (No such device); a software one: sidewire run");
    mover_connection_destroy(&connection);
    channel_errno = 0;
    id_errno = EMFILE;
    assert_int_equal(start(), MOVER_FAULT);
    says(MOVER_FAULT, "no connection can be made: Too many open files");
    mover_connection_destroy(&connection);
    id_errno = 0;
    address_errno = ENODEV; /* there are others, but none for this address */
    assert_int_equal(start(), MOVER_NO_DEVICE);
    says(MOVER_NO_DEVICE, "no RDMA device leads to there: No such device");
}

static void next__tells_an_absent_host_from_one_without_a_device_that_leads_there(void **state)
{
    (void)state;
    assert_int_equal(start(), MOVER_NOTHING);
    comes(RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
    gets(MOVER_NO_ANSWER);
    says(MOVER_NO_ANSWER, "nobody answers at there");
    comes(RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH);
    gets(MOVER_NO_DEVICE);
    says(MOVER_NO_DEVICE, "no RDMA device leads to there: No route to host");
}

/* librdmacm looks for the device when the address is there, and calls its own failure -1. */
static void next__says_what_librdmacm_itself_has_met(void **state)
{
    (void)state;
    assert_int_equal(start(), MOVER_NOTHING);
    event_errno = ENODEV;
    comes(RDMA_CM_EVENT_ADDR_ERROR, -1);
    gets(MOVER_NO_DEVICE);
    says(MOVER_NO_DEVICE, "no RDMA device leads to there: No such device");
    event_errno = 0;
    errno = EBADF; /* an old one */
    comes(RDMA_CM_EVENT_ADDR_ERROR, -EPERM);
    gets(MOVER_NO_DEVICE);
    says(MOVER_NO_DEVICE, "no RDMA device leads to there: Operation not permitted");
}

static void next__tells_a_missing_route_from_a_missing_device(void **state)
{
    (void)state;
    assert_int_equal(start(), MOVER_NOTHING);
    route_errno = EINVAL;
    comes(RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    gets(MOVER_NO_DEVICE);
    says(MOVER_NO_DEVICE, "no route to there: Invalid argument");
    comes(RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT); /* not the host's silence */
    gets(MOVER_NO_DEVICE);
    says(MOVER_NO_DEVICE, "no route to there: Connection timed out");
}

static void next__keeps_private_data_that_went_with_its_event(void **state)
{
    (void)state;
    assert_int_equal(start(), MOVER_NOTHING);
    comes(RDMA_CM_EVENT_ADDR_RESOLVED, 0); /* nobody hears of it */
    comes(RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    gets(MOVER_ROUTED);
    gets(MOVER_NOTHING);
    comes_with(RDMA_CM_EVENT_ESTABLISHED, 0, "welcome");
    gets(MOVER_UP);
    assert_int_equal(connection.private_bytes, sizeof("welcome"));
    assert_string_equal((const char *)connection.private_data, "welcome");
    comes(RDMA_CM_EVENT_DISCONNECTED, 0);
    gets(MOVER_ENDED);
    assert_int_equal(connection.private_bytes, 0);
    says(MOVER_ENDED, "there has ended the connection");
}

static void next__keeps_the_reason_of_a_rejection(void **state)
{
    enum { CONSUMER_DEFINED = 28 };
    (void)state;
    assert_int_equal(start(), MOVER_NOTHING);
    comes_with(RDMA_CM_EVENT_REJECTED, CONSUMER_DEFINED, "full");
    gets(MOVER_REJECTED);
    assert_int_equal(connection.status, CONSUMER_DEFINED);
    assert_string_equal((const char *)connection.private_data, "full");
}

static void destroy__ends_things_in_their_order_and_acknowledges_all(void **state)
{
    struct ibv_qp qp;
    (void)state;
    assert_int_equal(start(), MOVER_NOTHING);
    assert_true(mover_connection_queue(&connection, 8));
    connection.id->qp = &qp;
    comes(RDMA_CM_EVENT_ESTABLISHED, 0);
    gets(MOVER_UP);
    completion_events = 2;
    mover_queue_drain(&connection.queue);
    completion_events = 1; /* one more has come since */
    mover_connection_destroy(&connection);
    assert_int_equal(completion_events_acknowledged, 3);
    assert_string_equal(steps, "dqcwie");
    mover_connection_destroy(&connection); /* of nothing */
    assert_string_equal(steps, "dqcwie");
}

static void destroy__disconnects_nobody_who_never_was_there(void **state)
{
    (void)state;
    assert_int_equal(start(), MOVER_NOTHING);
    assert_true(mover_connection_queue(&connection, 8));
    comes(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
    gets(MOVER_NO_ANSWER);
    mover_connection_destroy(&connection);
    assert_string_equal(steps, "cwie");
}

static void take__leaves_the_id_to_its_owner_where_it_fails(void **state)
{
    struct rdma_cm_id *id = NULL;
    (void)state;
    assert_int_equal(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
    id_errno = ENOMEM;
    assert_int_equal(mover_connection_take(&connection, epoll_fd, NULL, id), -ENOMEM);
    assert_null(connection.id);
    id_errno = 0;
    assert_int_equal(mover_connection_take(&connection, epoll_fd, NULL, id), 0);
    assert_ptr_equal(id->channel, connection.events);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(start__tells_what_this_host_lacks),
        CASE(next__tells_an_absent_host_from_one_without_a_device_that_leads_there),
        CASE(next__says_what_librdmacm_itself_has_met),
        CASE(next__tells_a_missing_route_from_a_missing_device),
        CASE(next__keeps_private_data_that_went_with_its_event),
        CASE(next__keeps_the_reason_of_a_rejection),
        CASE(destroy__ends_things_in_their_order_and_acknowledges_all),
        CASE(destroy__disconnects_nobody_who_never_was_there),
        CASE(take__leaves_the_id_to_its_owner_where_it_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
