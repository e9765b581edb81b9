/* SPDX-License-Identifier: BSD-2-Clause */
/* What an edge-triggered program has been told of a socket, and when it is told again. */
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "sockets/epoll_impl.h"
#include "sockets/rdma.h"
#include "sockets/wait.h"

/* Bytes that have not been read, counted up to `max` only. */
static size_t unread_bytes(const struct sw_sock *sock, char *copy, size_t max)
{
    ssize_t got = sw_rdma.rrecv(sw_sock_rs(sock), copy, max, MSG_PEEK | MSG_DONTWAIT);
    return got > 0 ? (size_t)got : 0;
}

/* Remembers how much had come when it was told. */
static void note_arrived(struct sw_epoll_item *item)
{
    char few[4096];
    uint64_t received = atomic_load_explicit(&item->sock->received, memory_order_relaxed);
    size_t more = unread_bytes(item->sock, few, sizeof(few));
    item->arrived = received + more;
    item->arrived_known = more < sizeof(few);
}

/* Whether more has come since, although not all was read. Where it was not known how much there
 * was, it is told once too often rather than never. */
static bool has_grown(struct sw_epoll_item *item)
{
    enum { ALL = 1 << 20 };
    char few[4096];
    uint64_t received = atomic_load_explicit(&item->sock->received, memory_order_relaxed);
    uint64_t now = received + unread_bytes(item->sock, few, sizeof(few));
    if (item->arrived_known && now - received < sizeof(few))
        return now > item->arrived;
    char *many = malloc(ALL);
    if (!many)
        return true;
    now = received + unread_bytes(item->sock, many, ALL);
    free(many);
    bool grown = !item->arrived_known || now > item->arrived;
    item->arrived = now;
    item->arrived_known = true;
    return grown;
}

/* The part of `ready` that an edge-triggered program is to be told. */
static uint32_t new_edges(struct sw_epoll_item *item, uint32_t ready)
{
    unsigned drained = atomic_load_explicit(&item->sock->drained, memory_order_relaxed);
    unsigned blocked = atomic_load_explicit(&item->sock->blocked, memory_order_relaxed);
    uint32_t ends = ready & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    bool edge = ends & ~item->end_told;
    if (ready & EPOLLIN && (!item->in_told || drained != item->drained || has_grown(item))) {
        edge = item->in_told = true;
        item->drained = drained;
        note_arrived(item);
    }
    if (ready & EPOLLOUT && (!item->out_told || blocked != item->blocked)) {
        edge = item->out_told = true;
        item->blocked = blocked;
    }
    item->end_told |= ends;
    return edge ? ready : 0;
}

uint32_t sw_epoll_item_judge(struct sw_epoll_item *item, short shown)
{
    uint32_t wanted = item->events & ~(uint32_t)SW_EPOLL_FLAGS;
    uint32_t ready = (uint16_t)sw_wait_translate(item->sock, shown, (short)wanted);
    if (ready && item->events & EPOLLET)
        ready = new_edges(item, ready);
    item->dead = ((shown & (POLLHUP | POLLERR)) || atomic_load(&item->sock->ended)) && !ready;
    return ready;
}
