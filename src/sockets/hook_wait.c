/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of poll, select and epoll. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/probe.h"
#include "sockets/epoll.h"
#include "sockets/real.h"
#include "sockets/wait.h"

static int64_t ns_of_ms(int ms)
{
    return ms < 0 ? -1 : (int64_t)ms * (int64_t)SW_NS_PER_MS;
}

static int64_t ns_of_time(const struct timespec *time)
{
    return time ? (int64_t)time->tv_sec * (int64_t)SW_NS_PER_S + time->tv_nsec : -1;
}

/* A call with a mask of signals has it while it waits: not as one step, as the kernel does it, so a
 * signal may come just before the sleep. It then ends with the timeout. */
static void mask_enter(const sigset_t *mask, sigset_t *old)
{
    if (mask)
        pthread_sigmask(SIG_SETMASK, mask, old);
}

static void mask_leave(const sigset_t *mask, const sigset_t *old)
{
    int saved_errno = errno;
    if (mask)
        pthread_sigmask(SIG_SETMASK, old, NULL);
    errno = saved_errno;
}

SW_HOOK int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    if (!sw_wait_concerns(fds, count))
        return SW_REAL(poll)(fds, count, timeout_ms);
    return sw_wait_poll(fds, count, sw_wait_limit_ns(ns_of_ms(timeout_ms)));
}

SW_HOOK int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t fds_len)
{
    if (count > fds_len / sizeof(*fds) || !sw_wait_concerns(fds, count))
        return SW_REAL(__poll_chk)(fds, count, timeout_ms, fds_len);
    return sw_wait_poll(fds, count, sw_wait_limit_ns(ns_of_ms(timeout_ms)));
}

static int poll_masked(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                       const sigset_t *mask)
{
    sigset_t old;
    mask_enter(mask, &old);
    int ready = sw_wait_poll(fds, count, sw_wait_limit_ns(ns_of_time(timeout)));
    mask_leave(mask, &old);
    return ready;
}

SW_HOOK int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                  const sigset_t *mask)
{
    if (!sw_wait_concerns(fds, count))
        return SW_REAL(ppoll)(fds, count, timeout, mask);
    return poll_masked(fds, count, timeout, mask);
}

SW_HOOK int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                        const sigset_t *mask, size_t fds_len)
{
    if (count > fds_len / sizeof(*fds) || !sw_wait_concerns(fds, count))
        return SW_REAL(__ppoll_chk)(fds, count, timeout, mask, fds_len);
    return poll_masked(fds, count, timeout, mask);
}

static bool hook_wait_is_in(int fd, const fd_set *set)
{
    return set && FD_ISSET(fd, set);
}

/* The descriptors of the three sets. Returns how many. */
static nfds_t list_sets(int count, const fd_set *in, const fd_set *out, const fd_set *except,
                        struct pollfd *fds)
{
    nfds_t used = 0;
    for (int fd = 0; fd < count; fd++) {
        int events = (hook_wait_is_in(fd, in) ? POLLIN : 0) |
                     (hook_wait_is_in(fd, out) ? POLLOUT : 0) |
                     (hook_wait_is_in(fd, except) ? POLLPRI : 0);
        if (events)
            fds[used++] = (struct pollfd){.fd = fd, .events = (short)events};
    }
    return used;
}

static int fill_sets(const struct pollfd *fds, nfds_t used, fd_set *in, fd_set *out, fd_set *except)
{
    int count = 0;
    for (nfds_t i = 0; i < used; i++) {
        short shown = fds[i].revents, wanted = fds[i].events;
        if ((wanted & POLLIN) && !(shown & (POLLIN | POLLHUP | POLLERR)))
            FD_CLR(fds[i].fd, in);
        else if (wanted & POLLIN)
            count++;
        if ((wanted & POLLOUT) && !(shown & (POLLOUT | POLLERR)))
            FD_CLR(fds[i].fd, out);
        else if (wanted & POLLOUT)
            count++;
        if ((wanted & POLLPRI) && !(shown & POLLPRI))
            FD_CLR(fds[i].fd, except);
        else if (wanted & POLLPRI)
            count++;
    }
    return count;
}

/* -2: no socket of RDMA is in the sets, so the call is the kernel's. */
static int select_mixed(int count, fd_set *in, fd_set *out, fd_set *except, int64_t timeout_ns,
                        const sigset_t *mask)
{
    /* Bits beyond FD_SETSIZE cannot be in an fd_set that is ours to look at. */
    if (count < 0 || count > FD_SETSIZE)
        return -2;
    struct pollfd *fds = malloc((size_t)(count + 1) * sizeof(*fds));
    if (!fds)
        return -2;
    nfds_t used = list_sets(count, in, out, except, fds);
    int ready = -2;
    if (sw_wait_concerns(fds, used)) {
        sigset_t old;
        mask_enter(mask, &old);
        ready = sw_wait_poll(fds, used, sw_wait_limit_ns(timeout_ns));
        mask_leave(mask, &old);
        for (nfds_t i = 0; ready > 0 && i < used; i++)
            if (fds[i].revents & POLLNVAL) {
                errno = EBADF;
                ready = -1;
            }
        if (ready >= 0)
            ready = fill_sets(fds, used, in, out, except);
    }
    int saved_errno = errno;
    free(fds);
    errno = saved_errno;
    return ready;
}

static bool is_set_readable(const fd_set *set, int count)
{
    return !set || sw_probe_bytes(set, ((size_t)count + 7) / 8);
}

/* Whether any socket is known at all that select() could name. A set that cannot be read is for the
 * kernel to refuse. */
static bool select_concerns(int count, const fd_set *in, const fd_set *out, const fd_set *except,
                            const void *timeout, size_t timeout_len)
{
    bool is_known = false;
    for (int fd = 0; fd < count && fd < FD_SETSIZE; fd++)
        is_known |= sw_table_peek(fd) != NULL;
    return is_known && is_set_readable(in, count) && is_set_readable(out, count) &&
           is_set_readable(except, count) && (!timeout || sw_probe_bytes(timeout, timeout_len));
}

SW_HOOK int select(int count, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
    if (!select_concerns(count, in, out, except, timeout, sizeof(*timeout)))
        return SW_REAL(select)(count, in, out, except, timeout);
    uint64_t start_ns = sw_clock_ns();
    int64_t ns = timeout ? (int64_t)timeout->tv_sec * (int64_t)SW_NS_PER_S +
                               timeout->tv_usec * (int64_t)SW_NS_PER_US
                         : -1;
    int ready = select_mixed(count, in, out, except, ns, NULL);
    if (ready == -2)
        return SW_REAL(select)(count, in, out, except, timeout);
    if (timeout) { /* what is left, as Linux has it */
        int64_t left = ns - (int64_t)(sw_clock_ns() - start_ns);
        left = left < 0 ? 0 : left;
        timeout->tv_sec = left / (int64_t)SW_NS_PER_S;
        timeout->tv_usec = left % (int64_t)SW_NS_PER_S / (int64_t)SW_NS_PER_US;
    }
    return ready;
}

SW_HOOK int pselect(int count, fd_set *in, fd_set *out, fd_set *except,
                    const struct timespec *timeout, const sigset_t *mask)
{
    int ready = select_concerns(count, in, out, except, timeout, sizeof(*timeout))
                    ? select_mixed(count, in, out, except, ns_of_time(timeout), mask)
                    : -2;
    return ready == -2 ? SW_REAL(pselect)(count, in, out, except, timeout, mask) : ready;
}

SW_HOOK int epoll_create(int size)
{
    int epfd = SW_REAL(epoll_create)(size);
    if (epfd >= 0)
        sw_epoll_new(epfd);
    return epfd;
}

SW_HOOK int epoll_create1(int flags)
{
    int epfd = SW_REAL(epoll_create1)(flags);
    if (epfd >= 0)
        sw_epoll_new(epfd);
    return epfd;
}

SW_HOOK int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    struct sw_sock *sock = sw_sock_get(fd);
    struct sw_file *epoll = sock ? sw_table_take(epfd, SW_KIND_EPOLL) : NULL;
    int result = epoll ? sw_epoll_control((struct sw_epoll *)epoll, op, sock, fd, event)
                       : SW_REAL(epoll_ctl)(epfd, op, fd, event);
    if (epoll)
        sw_file_put(epoll);
    if (sock)
        sw_sock_put(sock);
    return result;
}

/* A set without sockets of ours goes to the kernel, with the nanoseconds it was given. */
static struct sw_epoll *epoll_get(int epfd)
{
    struct sw_file *file = sw_table_peek(epfd);
    if (!file || file->kind != SW_KIND_EPOLL)
        return NULL;
    return (struct sw_epoll *)sw_table_take(epfd, SW_KIND_EPOLL);
}

static int put_epoll(struct sw_epoll *epoll, int count)
{
    sw_file_put((struct sw_file *)epoll);
    return count;
}

static int wait_epoll(struct sw_epoll *epoll, int epfd, struct epoll_event *out, int max,
                      int64_t timeout_ns, const sigset_t *mask)
{
    sigset_t old;
    mask_enter(mask, &old);
    int count = sw_epoll_wait(epoll, epfd, out, max, sw_wait_limit_ns(timeout_ns));
    mask_leave(mask, &old);
    return put_epoll(epoll, count);
}

SW_HOOK int epoll_wait(int epfd, struct epoll_event *out, int max, int timeout_ms)
{
    struct sw_epoll *epoll = epoll_get(epfd);
    return epoll ? wait_epoll(epoll, epfd, out, max, ns_of_ms(timeout_ms), NULL)
                 : SW_REAL(epoll_wait)(epfd, out, max, timeout_ms);
}

SW_HOOK int epoll_pwait(int epfd, struct epoll_event *out, int max, int timeout_ms,
                        const sigset_t *mask)
{
    struct sw_epoll *epoll = epoll_get(epfd);
    if (!epoll)
        return SW_REAL(epoll_pwait)(epfd, out, max, timeout_ms, mask);
    if (sw_epoll_enter(epoll)) {
        int count =
            sw_epoll_left(epoll, out, SW_REAL(epoll_pwait)(epfd, out, max, timeout_ms, mask));
        if (count || !sw_epoll_has_rdma(epoll))
            return put_epoll(epoll, count);
    }
    return wait_epoll(epoll, epfd, out, max, ns_of_ms(timeout_ms), mask);
}

SW_HOOK int epoll_pwait2(int epfd, struct epoll_event *out, int max, const struct timespec *timeout,
                         const sigset_t *mask)
{
    struct sw_epoll *epoll = epoll_get(epfd);
    if (!epoll)
        return SW_REAL(epoll_pwait2)(epfd, out, max, timeout, mask);
    if (sw_epoll_enter(epoll)) {
        int count = sw_epoll_left(epoll, out, SW_REAL(epoll_pwait2)(epfd, out, max, timeout, mask));
        if (count || !sw_epoll_has_rdma(epoll))
            return put_epoll(epoll, count);
    }
    return wait_epoll(epoll, epfd, out, max, ns_of_time(timeout), mask);
}
