/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/wake.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

bool coll_wake_open(struct coll_wake *wake, int epoll_fd, void *epoll_data)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = epoll_data};
    wake->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return wake->fd >= 0 && !epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake->fd, &event);
}

void coll_wake_close(struct coll_wake *wake)
{
    if (wake->fd >= 0)
        close(wake->fd);
    wake->fd = -1;
}

void coll_wake_want(struct coll_wake *wake)
{
    const uint64_t one = 1;
    __atomic_store_n(&wake->is_wanted, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&wake->is_asleep, __ATOMIC_SEQ_CST))
        return;
    while (write(wake->fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue; /* a full counter wakes, too */
}

bool coll_wake_take(struct coll_wake *wake)
{
    return __atomic_load_n(&wake->is_wanted, __ATOMIC_RELAXED) &&
           __atomic_exchange_n(&wake->is_wanted, 0, __ATOMIC_ACQ_REL);
}

bool coll_wake_sleep_begin(struct coll_wake *wake)
{
    __atomic_store_n(&wake->is_asleep, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&wake->is_wanted, __ATOMIC_SEQ_CST))
        return true;
    coll_wake_sleep_end(wake);
    return false;
}

void coll_wake_sleep_end(struct coll_wake *wake)
{
    __atomic_store_n(&wake->is_asleep, 0, __ATOMIC_RELAXED);
}

void coll_wake_drain(struct coll_wake *wake)
{
    uint64_t count;
    while (read(wake->fd, &count, sizeof(count)) < 0 && errno == EINTR)
        continue;
}
