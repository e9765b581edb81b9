/* SPDX-License-Identifier: BSD-2-Clause */
/* The sets and what is in them. Waiting is in epoll_wait.c. */
#include "sockets/epoll.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "sockets/epoll_impl.h"
#include "sockets/meet.h"
#include "sockets/real.h"

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sw_epoll *all;

void sw_epoll_new(int epfd)
{
    struct sw_epoll *epoll = calloc(1, sizeof(*epoll));
    if (!epoll)
        return; /* then sockets in it go by TCP's rules: nothing is told of RDMA */
    sw_table_clear(epfd);
    epoll->file.kind = SW_KIND_EPOLL;
    epoll->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    epoll->epfd = epfd;
    epoll->wake = -1;
    pthread_mutex_lock(&all_lock);
    epoll->next = all;
    all = epoll;
    pthread_mutex_unlock(&all_lock);
    sw_table_set(epfd, &epoll->file);
}

void sw_epoll_end(struct sw_epoll *epoll)
{
    pthread_mutex_lock(&all_lock);
    for (struct sw_epoll **at = &all; *at; at = &(*at)->next)
        if (*at == epoll) {
            *at = epoll->next;
            break;
        }
    pthread_mutex_unlock(&all_lock);
    if (epoll->wake >= 0)
        SW_REAL(close)(epoll->wake);
    free(epoll->items);
    free(epoll->fds);
    free(epoll->fd_item);
    free(epoll);
}

bool sw_epoll_has_rdma(const struct sw_epoll *epoll)
{
    return atomic_load_explicit(&epoll->rdma, memory_order_acquire) != 0;
}

static short poll_events(uint32_t events)
{
    int out = 0;
    if (events & (EPOLLIN | EPOLLRDNORM | EPOLLRDHUP))
        out |= POLLIN;
    if (events & (EPOLLOUT | EPOLLWRNORM))
        out |= POLLOUT;
    return (short)out;
}

static void publish_count(struct sw_epoll *epoll)
{
    atomic_store_explicit(&epoll->rdma, epoll->connections + epoll->listeners + epoll->lost,
                          memory_order_release);
}

static bool is_connection(const struct sw_epoll_item *item)
{
    int way = sw_sock_way(item->sock);
    return !item->spent && sw_sock_rs(item->sock) >= 0 && sw_way_is_rdma(way) && way != SW_WAY_LOST;
}

/* Appends what an item is to be watched by. */
static void append_item(struct sw_epoll *epoll, struct sw_epoll_item *item)
{
    size_t at = epoll->listeners + epoll->connections;
    epoll->fds[at] =
        (struct pollfd){.fd = sw_sock_wait_fd(item->sock), .events = poll_events(item->events)};
    epoll->fd_item[at] = (uint32_t)(item - epoll->items);
    item->at = (int)at;
}

static void append_connection(struct sw_epoll *epoll, struct sw_epoll_item *item)
{
    append_item(epoll, item);
    epoll->connections++;
}

static void take_out_connection(struct sw_epoll *epoll, struct sw_epoll_item *item)
{
    size_t last = epoll->listeners + --epoll->connections;
    epoll->fds[item->at] = epoll->fds[last];
    epoll->fd_item[item->at] = epoll->fd_item[last];
    epoll->items[epoll->fd_item[last]].at = item->at;
    item->at = -1;
}

void sw_epoll_rebuild(struct sw_epoll *epoll)
{
    epoll->connections = epoll->listeners = epoll->lost = 0;
    for (size_t i = 0; i < epoll->count; i++) {
        struct sw_epoll_item *item = &epoll->items[i];
        item->at = -1;
        if (!item->spent && sw_sock_way(item->sock) == SW_WAY_LISTEN &&
            sw_sock_rs(item->sock) >= 0) {
            append_item(epoll, item);
            epoll->listeners++;
        }
        epoll->lost += !item->spent && sw_sock_way(item->sock) == SW_WAY_LOST;
    }
    for (size_t i = 0; i < epoll->count; i++)
        if (is_connection(&epoll->items[i]))
            append_connection(epoll, &epoll->items[i]);
    publish_count(epoll);
}

void sw_epoll_wake(struct sw_epoll *epoll)
{
    uint64_t one = 1;
    if (epoll->wake >= 0 && (atomic_load(&epoll->sleepers) || atomic_load(&epoll->kernel_sleepers)))
        if (SW_REAL(write)(epoll->wake, &one, sizeof(one)) < 0)
            return; /* it is full: they are being woken */
}

static struct sw_epoll_item *find_item(struct sw_epoll *epoll, struct sw_sock *sock, int fd)
{
    size_t hint = atomic_load_explicit(&sock->epoll_place, memory_order_relaxed);
    if (fd >= 0 && hint < epoll->count && epoll->items[hint].sock == sock &&
        epoll->items[hint].fd == fd)
        return &epoll->items[hint];
    for (size_t i = 0; i < epoll->count; i++)
        if (epoll->items[i].sock == sock && (fd < 0 || epoll->items[i].fd == fd)) {
            atomic_store_explicit(&sock->epoll_place, i, memory_order_relaxed);
            return &epoll->items[i];
        }
    return NULL;
}

static void item_remove(struct sw_epoll *epoll, struct sw_epoll_item *item)
{
    *item = epoll->items[--epoll->count];
    if (item->at >= 0)
        epoll->fd_item[item->at] = (uint32_t)(item - epoll->items);
}

static int make_wake(struct sw_epoll *epoll, int epfd)
{
    epoll->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = epoll};
    if (epoll->wake >= 0 && SW_REAL(epoll_ctl)(epfd, EPOLL_CTL_ADD, epoll->wake, &event) == 0)
        return 0;
    return -1;
}

static int item_add(struct sw_epoll *epoll, int epfd, struct sw_sock *sock, int fd,
                    struct epoll_event *event)
{
    if (epoll->count == epoll->room) {
        size_t room = epoll->room ? 2 * epoll->room : 16;
        struct sw_epoll_item *items = realloc(epoll->items, room * sizeof(*items));
        if (items)
            epoll->items = items;
        struct pollfd *fds = realloc(epoll->fds, room * sizeof(*fds));
        if (fds)
            epoll->fds = fds;
        uint32_t *fd_item = realloc(epoll->fd_item, room * sizeof(*fd_item));
        if (fd_item)
            epoll->fd_item = fd_item;
        if (!items || !fds || !fd_item) {
            errno = ENOMEM;
            return -1;
        }
        epoll->room = room;
    }
    bool in_kernel = !sw_way_is_rdma(sw_sock_way(sock));
    if (epoll->wake < 0 && make_wake(epoll, epfd))
        return -1;
    if (in_kernel && SW_REAL(epoll_ctl)(epfd, EPOLL_CTL_ADD, fd, event))
        return -1;
    epoll->items[epoll->count++] = (struct sw_epoll_item){.sock = sock,
                                                          .fd = fd,
                                                          .events = event->events,
                                                          .data = event->data,
                                                          .in_kernel = in_kernel,
                                                          .at = -1};
    struct sw_epoll_item *item = &epoll->items[epoll->count - 1];
    if (is_connection(item)) {
        append_connection(epoll, item);
        publish_count(epoll);
    } else {
        sw_epoll_rebuild(epoll);
    }
    return 0;
}

static int control_item(struct sw_epoll *epoll, int epfd, int op, struct sw_sock *sock, int fd,
                        struct epoll_event *event)
{
    struct sw_epoll_item *item = find_item(epoll, sock, fd);
    if (!item && (op != EPOLL_CTL_ADD || sw_sock_way(sock) == SW_WAY_TCP))
        return SW_REAL(epoll_ctl)(epfd, op, fd, event);
    if (op == EPOLL_CTL_ADD && item) {
        errno = EEXIST;
        return -1;
    }
    if (op == EPOLL_CTL_ADD)
        return item_add(epoll, epfd, sock, fd, event);
    int result = item->in_kernel ? SW_REAL(epoll_ctl)(epfd, op, fd, event) : 0;
    bool was_connection = is_connection(item) && item->at >= 0;
    if (result == 0 && op == EPOLL_CTL_DEL) {
        if (was_connection)
            take_out_connection(epoll, item);
        item_remove(epoll, item);
    } else if (result == 0) {
        *item = (struct sw_epoll_item){.sock = sock,
                                       .fd = fd,
                                       .events = event->events,
                                       .data = event->data,
                                       .in_kernel = item->in_kernel,
                                       .at = item->at};
        if (was_connection)
            epoll->fds[item->at].events = poll_events(item->events);
    }
    if (was_connection)
        publish_count(epoll);
    else
        sw_epoll_rebuild(epoll);
    return result;
}

int sw_epoll_control(struct sw_epoll *epoll, int op, struct sw_sock *sock, int fd,
                     struct epoll_event *event)
{
    if (op != EPOLL_CTL_DEL && !event) {
        errno = EFAULT;
        return -1;
    }
    if (op == EPOLL_CTL_ADD)
        sw_meet_use(sock, fd);
    pthread_mutex_lock(&epoll->lock);
    int result = control_item(epoll, epoll->epfd, op, sock, fd, event);
    if (result == 0 && sw_epoll_has_rdma(epoll))
        sw_epoll_wake(epoll);
    pthread_mutex_unlock(&epoll->lock);
    return result;
}

static void each_with(struct sw_sock *sock, bool is_gone)
{
    pthread_mutex_lock(&all_lock);
    for (struct sw_epoll *epoll = all; epoll; epoll = epoll->next) {
        pthread_mutex_lock(&epoll->lock);
        bool changed = false;
        struct sw_epoll_item *item;
        while (is_gone && (item = find_item(epoll, sock, -1))) {
            item_remove(epoll, item);
            changed = true;
        }
        for (size_t i = 0; i < epoll->count; i++) {
            item = &epoll->items[i];
            if (item->sock != sock)
                continue;
            changed = true;
            if (item->in_kernel && sw_way_is_rdma(sw_sock_way(sock))) {
                SW_REAL(epoll_ctl)(epoll->epfd, EPOLL_CTL_DEL, item->fd, NULL);
                item->in_kernel = false;
            }
        }
        if (changed) {
            sw_epoll_rebuild(epoll);
            sw_epoll_wake(epoll);
        }
        pthread_mutex_unlock(&epoll->lock);
    }
    pthread_mutex_unlock(&all_lock);
}

void sw_epoll_moved(struct sw_sock *sock)
{
    each_with(sock, false);
}

void sw_epoll_forget(struct sw_sock *sock)
{
    each_with(sock, true);
}

void sw_epoll_forked(void)
{
    all_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (struct sw_epoll *epoll = all; epoll; epoll = epoll->next) {
        epoll->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        atomic_store(&epoll->rdma, 0);
        epoll->connections = epoll->listeners = epoll->lost = 0;
    }
}
