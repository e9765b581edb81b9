/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of epoll share: epoll.c, epoll_edge.c, epoll_wait.c. */
#ifndef SW_SOCKETS_EPOLL_IMPL_H
#define SW_SOCKETS_EPOLL_IMPL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "sockets/epoll.h"

/* Flags among the events of an item that say how to tell. */
#define SW_EPOLL_FLAGS (EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE)

struct sw_epoll_item {
    struct sw_sock *sock;
    int fd;
    uint32_t events;
    epoll_data_t data;
    bool in_kernel, spent; /* spent: EPOLLONESHOT */
    int at;                /* its place in what is made of the items, -1: none */
    /* Edges: what was told, and what has to happen before it is told again. */
    bool in_told, out_told;
    unsigned drained, blocked;
    uint32_t end_told;
    uint64_t arrived; /* bytes, read and unread, when `in` was told */
    bool arrived_known;
    bool dead; /* it is at its end, and all that is asked for was told */
};

struct sw_epoll {
    struct sw_file file;
    pthread_mutex_t lock;
    int epfd, wake;
    struct sw_epoll_item *items;
    size_t count, room;
    /* Made of the items: listeners, then connections. */
    struct pollfd *fds;
    uint32_t *fd_item;
    size_t connections, listeners, lost;
    size_t turn; /* who is looked at first */
    atomic_size_t rdma;
    atomic_int kernel_sleepers, sleepers;
    uint64_t kernel_asked_ns;
    bool kernel_first;
    struct sw_epoll *next;
};

/* epoll.c: makes what is watched of the items anew. Under the lock, after changes of more than one
 * connection. */
void sw_epoll_rebuild(struct sw_epoll *epoll);
/* epoll.c: a sleeper looks again. */
void sw_epoll_wake(struct sw_epoll *epoll);

/* epoll_edge.c: what is to be told of an item that shows these events of poll(); 0: nothing. */
uint32_t sw_epoll_item_judge(struct sw_epoll_item *item, short shown);

#endif
