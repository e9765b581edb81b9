/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors of verbs and of rdma_cm, which are read without waiting, and wake their owner. */
#ifndef SW_MOVERS_WATCH_H
#define SW_MOVERS_WATCH_H

#include <fcntl.h>
#include <stdbool.h>
#include <sys/epoll.h>

/* Reading it no longer waits. False and errno: it would. */
static inline bool mover_no_wait(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && !fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/* The same, and what can be read wakes the owner of the epoll, who finds `data`. */
static inline bool mover_watch(int epoll_fd, int fd, void *data)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = data};
    return mover_no_wait(fd) && !epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

#endif
