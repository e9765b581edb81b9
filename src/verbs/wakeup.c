/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/wakeup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/log.h"

int sw_wakeup_open(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
}

void sw_wakeup_add(int fd)
{
    const uint64_t one = 1;
    if (!sw_fd_is_anonymous(fd) || write(fd, &one, sizeof(one)) != sizeof(one))
        sw_warn("cannot signal an event on descriptor %d: the program closed it?", fd);
}

int sw_wakeup_take(int fd)
{
    uint64_t one;
    const ssize_t got = read(fd, &one, sizeof(one));
    if (got == sizeof(one))
        return 0;
    if (got >= 0)
        errno = EIO;
    return -1;
}

/* For kernels whose eventfds cannot be read with RWF_NOWAIT (before 5.8). O_NONBLOCK belongs to the
 * program, so it is only borrowed; a concurrent blocking reader could see EAGAIN once. */
static bool take_now_by_flag(int fd)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    const int flags = fcntl(fd, F_GETFL);
    if (poll(&readable, 1, 0) != 1 || flags < 0)
        return false;
    if (flags & O_NONBLOCK)
        return sw_wakeup_take(fd) == 0;
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    const bool taken = sw_wakeup_take(fd) == 0;
    fcntl(fd, F_SETFL, flags);
    return taken;
}

static bool take_now(int fd)
{
    uint64_t one;
    struct iovec iov = {.iov_base = &one, .iov_len = sizeof(one)};
    ssize_t got;
    do
        got = preadv2(fd, &iov, 1, -1, RWF_NOWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno != EAGAIN)
        return take_now_by_flag(fd);
    return got == sizeof(one);
}

void sw_wakeup_retract(int fd, unsigned int count)
{
    while (count-- && take_now(fd))
        ;
}
