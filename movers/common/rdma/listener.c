/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rdma/listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/rdma/watch.h"
#include "common/time/clock.h"

enum { FIRST_WAIT_MS = 100, LONGEST_WAIT_MS = 5000 };

struct rdma_event_channel *mover_listener_events(void)
{
    struct rdma_event_channel *events = rdma_create_event_channel();
    if (events && !mover_no_wait(events->fd)) {
        rdma_destroy_event_channel(events);
        return NULL;
    }
    return events;
}

int mover_listener_timer(void)
{
    return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
}

bool mover_listener_is_due(int timer_fd)
{
    uint64_t expired;
    return read(timer_fd, &expired, sizeof(expired)) > 0;
}

bool mover_listener_next(struct rdma_event_channel *events, struct mover_arrival *arrival)
{
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(events, &event))
        return false;
    *arrival = (struct mover_arrival){
        .type = event->event, .id = event->id, .listen_id = event->listen_id};
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        arrival->param = event->param.conn;
        if (event->param.conn.private_data)
            arrival->param.private_data =
                memcpy(arrival->private_data, event->param.conn.private_data,
                       event->param.conn.private_data_len);
        else
            arrival->param.private_data_len = 0;
    }
    rdma_ack_cm_event(event);
    return true;
}

void *mover_arrival_ended(const struct mover_arrival *arrival)
{
    const bool goes_on =
        arrival->type == RDMA_CM_EVENT_ESTABLISHED || arrival->type == RDMA_CM_EVENT_ADDR_CHANGE;
    return goes_on ? NULL : arrival->id->context;
}

/* The timer goes off no later than that. Other listeners may have set it already. */
static void arm_listener(int timer_fd, uint64_t now_ns, uint64_t at_ns)
{
    struct itimerspec is;
    const uint64_t wait_ns = at_ns > now_ns ? at_ns - now_ns : 1;
    if (timerfd_gettime(timer_fd, &is))
        return;
    const uint64_t left_ns =
        (uint64_t)is.it_value.tv_sec * NS_PER_S + (uint64_t)is.it_value.tv_nsec;
    if (left_ns && left_ns <= wait_ns)
        return;
    is = (struct itimerspec){.it_value = {.tv_sec = (time_t)(wait_ns / NS_PER_S),
                                          .tv_nsec = (long)(wait_ns % NS_PER_S)}};
    timerfd_settime(timer_fd, 0, &is, NULL);
}

static void keep_port(struct mover_listener *listener)
{
    const uint16_t port = rdma_get_src_port(listener->id);
    if (listener->address.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&listener->address)->sin6_port = port;
    else if (listener->address.ss_family == AF_INET)
        ((struct sockaddr_in *)&listener->address)->sin_port = port;
}

/* Like the kernel, rdma_cm calls a port EADDRNOTAVAIL that somebody has at all addresses, or has at
 * one of all that are asked for. The address itself is there if another port can be had. */
static bool is_port_taken(struct rdma_event_channel *events, struct sockaddr_storage address)
{
    struct rdma_cm_id *id;
    if (rdma_create_id(events, &id, NULL, RDMA_PS_TCP))
        return false;
    if (address.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&address)->sin6_port = 0;
    else
        ((struct sockaddr_in *)&address)->sin_port = 0;
    const bool is_bound = !rdma_bind_addr(id, (struct sockaddr *)&address);
    rdma_destroy_id(id);
    return is_bound;
}

static int start_listening(struct mover_listener *listener)
{
    struct rdma_cm_id *id;
    if (rdma_create_id(listener->events, &id, NULL, RDMA_PS_TCP))
        return errno ? -errno : -ENODEV;
    if (rdma_bind_addr(id, (struct sockaddr *)&listener->address) ||
        rdma_listen(id, listener->backlog)) {
        const int why = -errno;
        rdma_destroy_id(id);
        return why == -EADDRNOTAVAIL && is_port_taken(listener->events, listener->address)
                   ? -EADDRINUSE
                   : why;
    }
    listener->id = id;
    keep_port(listener);
    return 0;
}

static void tell_owner(struct mover_listener *listener)
{
    if (listener->changed)
        listener->changed(listener);
}

static size_t bytes_of(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

int mover_listener_open(struct mover_listener *listener, const struct sockaddr *address)
{
    memset(&listener->address, 0, sizeof(listener->address));
    memcpy(&listener->address, address, bytes_of(address));
    listener->id = NULL;
    listener->why = start_listening(listener);
    return listener->why;
}

/* After a change the address is often still there, and nobody has to know unless it is at another
 * device. Just after a removal it is not, so the first try is the timer's. */
static void lose_listener(struct mover_listener *listener, enum rdma_cm_event_type type)
{
    const uint64_t now_ns = mover_now_ns();
    const struct ibv_context *before = listener->id->verbs;
    rdma_destroy_id(listener->id);
    listener->id = NULL;
    listener->why = type == RDMA_CM_EVENT_DEVICE_REMOVAL ? -ENODEV : start_listening(listener);
    if (!listener->why && listener->id->verbs != before)
        tell_owner(listener);
    if (!listener->why)
        return;
    listener->losses++;
    listener->wait_ns = FIRST_WAIT_MS * NS_PER_MS;
    listener->retry_ns = now_ns + listener->wait_ns;
    arm_listener(listener->timer_fd, now_ns, listener->retry_ns);
    tell_owner(listener);
}

bool mover_listener_take(struct mover_listener *listener, const struct mover_arrival *arrival)
{
    const enum rdma_cm_event_type type = arrival->type;
    if (!listener->id || listener->id != arrival->id || type == RDMA_CM_EVENT_CONNECT_REQUEST)
        return false;
    if (type == RDMA_CM_EVENT_DEVICE_REMOVAL || type == RDMA_CM_EVENT_ADDR_CHANGE)
        lose_listener(listener, type);
    return true;
}

/* Its address is; what else keeps it from listening does not mend itself. */
static bool is_away(int why)
{
    return why == -ENODEV || why == -EADDRNOTAVAIL;
}

static void try_again(struct mover_listener *listener)
{
    const int before = listener->why;
    listener->why = start_listening(listener);
    if (!listener->why || (listener->why != before && !is_away(listener->why)))
        tell_owner(listener);
}

void mover_listener_tick(struct mover_listener *listener)
{
    const uint64_t now_ns = mover_now_ns();
    if (listener->id || !listener->losses)
        return;
    if (now_ns >= listener->retry_ns) {
        try_again(listener);
        if (listener->id)
            return;
        if (listener->wait_ns < LONGEST_WAIT_MS * NS_PER_MS)
            listener->wait_ns *= 2;
        listener->retry_ns = now_ns + listener->wait_ns;
    }
    arm_listener(listener->timer_fd, now_ns, listener->retry_ns);
}

void mover_listener_close(struct mover_listener *listener)
{
    if (listener->id)
        rdma_destroy_id(listener->id);
    listener->id = NULL;
    listener->losses = 0;
}

uint16_t mover_listener_port(const struct mover_listener *listener)
{
    const struct sockaddr_storage *address = &listener->address;
    return ntohs(address->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                                                : ((const struct sockaddr_in *)address)->sin_port);
}

void mover_listener_name(const struct mover_listener *listener, char text[MOVER_LISTENER_TEXT])
{
    const struct sockaddr *address = (const struct sockaddr *)&listener->address;
    char host[INET6_ADDRSTRLEN + 20] = "?", port[8] = "?";
    getnameinfo(address, (socklen_t)bytes_of(address), host, sizeof(host), port, sizeof(port),
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(text, MOVER_LISTENER_TEXT, "%s port %s", host, port);
}

const char *mover_listener_help(int why)
{
    switch (-why) {
    case EADDRINUSE:
        return "; another server has this port there: stop that one, or take another port";
    case EADDRNOTAVAIL:
        return "; 'ip address' lists those of this host";
    case ENODEV:
        return "; 'sidewire doctor' says which devices there are";
    default:
        return "";
    }
}

void mover_listener_say(const struct mover_listener *listener, char text[MOVER_LISTENER_SAID])
{
    char name[MOVER_LISTENER_TEXT];
    mover_listener_name(listener, name);
    if (listener->id)
        snprintf(text, MOVER_LISTENER_SAID, "listens at %s again", name);
    else if (!is_away(listener->why))
        snprintf(text, MOVER_LISTENER_SAID, "cannot listen at %s again: %s%s. It goes on trying",
                 name, strerror(-listener->why), mover_listener_help(listener->why));
    else
        snprintf(text, MOVER_LISTENER_SAID,
                 "does not listen at %s any more: its interface is gone, or has changed (%s). It "
                 "listens again when the address is back; 'ip address' lists those of this host",
                 name, strerror(-listener->why));
}
