/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of poll(), ppoll(), epoll_wait() and what is like it: a program that waits for completions
 * takes in its packets meanwhile (link/attend.h). A call that names no completion channel is
 * libc's, and so is what any call answers. Programs that call select() are left to the engine. */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/probe.h"
#include "link/attend.h"
#include "preload/real.h"
#include "preload/waits.h"

/* Timeouts in nanoseconds; UINT64_MAX for ever, 0 also where the kernel is to judge. */
static uint64_t poll_ns_of_ms(int ms)
{
    return ms < 0 ? UINT64_MAX : (uint64_t)ms * SW_NS_PER_MS;
}

static uint64_t poll_ns_of_time(const struct timespec *time)
{
    if (!time)
        return UINT64_MAX;
    if (!sw_probe_bytes(time, sizeof(*time)) || time->tv_sec < 0 || time->tv_nsec < 0 ||
        time->tv_nsec >= (long)SW_NS_PER_S ||
        (uint64_t)time->tv_sec >= UINT64_MAX / SW_NS_PER_S / 2)
        return 0;
    return (uint64_t)time->tv_sec * SW_NS_PER_S + (uint64_t)time->tv_nsec;
}

static bool has_channels(void)
{
    return __builtin_expect(atomic_load_explicit(&sw_attend_marks, memory_order_relaxed) != 0, 0) &&
           sw_attend_is_possible();
}

static int call_poll(struct sw_wait *wait, uint64_t ns)
{
    const struct timespec time = sw_time_of_ns(ns);
    return SW_REAL(ppoll)(wait->of.poll_fds, wait->count, ns == UINT64_MAX ? NULL : &time,
                          wait->mask);
}

/* Whether one of them is a channel. An array that cannot be read is for the kernel to refuse. */
static bool name_channel(struct pollfd *fds, nfds_t count)
{
    if (!has_channels() || count == 0 || count > SW_WAIT_FDS_MAX ||
        !sw_probe_bytes(fds, count * sizeof(*fds)))
        return false;
    for (nfds_t i = 0; i < count; i++)
        if (fds[i].events & (POLLIN | POLLRDNORM) && sw_attend_is_marked(fds[i].fd))
            return true;
    return false;
}

static int poll_channels(struct pollfd *fds, nfds_t count, uint64_t ns, const sigset_t *mask)
{
    struct sw_wait wait = {.call = call_poll, .count = count, .mask = mask, .of.poll_fds = fds};
    const int ready = call_poll(&wait, 0);
    if (ready)
        return ready;
    memcpy(wait.fds, fds, count * sizeof(*fds));
    return sw_wait_run(&wait, ns);
}

SW_HOOK int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    return timeout_ms && name_channel(fds, count)
               ? poll_channels(fds, count, poll_ns_of_ms(timeout_ms), NULL)
               : SW_REAL(poll)(fds, count, timeout_ms);
}

SW_HOOK int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t fds_len)
{
    return count > fds_len / sizeof(*fds) ? SW_REAL(__poll_chk)(fds, count, timeout_ms, fds_len)
                                          : poll(fds, count, timeout_ms);
}

SW_HOOK int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                  const sigset_t *mask)
{
    const uint64_t ns = name_channel(fds, count) ? poll_ns_of_time(timeout) : 0;
    return ns ? poll_channels(fds, count, ns, mask) : SW_REAL(ppoll)(fds, count, timeout, mask);
}

SW_HOOK int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                        const sigset_t *mask, size_t fds_len)
{
    return count > fds_len / sizeof(*fds) ? SW_REAL(__ppoll_chk)(fds, count, timeout, mask, fds_len)
                                          : ppoll(fds, count, timeout, mask);
}

/* The nanoseconds were as many milliseconds as fit an int. */
static int call_epoll(struct sw_wait *wait, uint64_t ns)
{
    const uint64_t ms = ns / SW_NS_PER_MS + (ns % SW_NS_PER_MS != 0);
    return SW_REAL(epoll_pwait)(wait->of.epoll.fd, wait->of.epoll.events, wait->of.epoll.room,
                                ns == UINT64_MAX ? -1 : (int)ms, wait->mask);
}

static bool is_set_of_channels(int epoll)
{
    return has_channels() && sw_attend_is_marked(epoll);
}

static int epoll_channels(int epoll, struct epoll_event *events, int room, uint64_t ns,
                          const sigset_t *mask)
{
    struct sw_wait wait = {.call = call_epoll,
                           .fds = {{.fd = epoll, .events = POLLIN}},
                           .count = 1,
                           .mask = mask,
                           .of.epoll = {.events = events, .fd = epoll, .room = room}};
    const int ready = call_epoll(&wait, 0);
    return ready ? ready : sw_wait_run(&wait, ns);
}

SW_HOOK int epoll_pwait(int epoll, struct epoll_event *events, int room, int timeout_ms,
                        const sigset_t *mask)
{
    if (!is_set_of_channels(epoll) || timeout_ms == 0)
        return SW_REAL(epoll_pwait)(epoll, events, room, timeout_ms, mask);
    return epoll_channels(epoll, events, room, poll_ns_of_ms(timeout_ms), mask);
}

SW_HOOK int epoll_wait(int epoll, struct epoll_event *events, int room, int timeout_ms)
{
    return is_set_of_channels(epoll) ? epoll_pwait(epoll, events, room, timeout_ms, NULL)
                                     : SW_REAL(epoll_wait)(epoll, events, room, timeout_ms);
}

/* A set becomes one of channels by what is put into it, be that another set. There may be a port
 * later. */
SW_HOOK int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    const int rc = SW_REAL(epoll_ctl)(epoll, op, fd, event);
    if (rc == 0 && op == EPOLL_CTL_ADD && sw_attend_is_marked(fd))
        sw_attend_mark(epoll);
    return rc;
}
