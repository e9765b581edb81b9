/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The libc functions behind the hooks of this library: the next definition after it, so that other
 * preloaded libraries keep working. Resolved by a constructor, or on first use by whoever is
 * earlier; after that a hook costs one load.
 */
#ifndef SW_SOCKETS_REAL_H
#define SW_SOCKETS_REAL_H

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* Entry points that compiled programs use and headers do not declare, or not always. */
ssize_t __read_chk(int fd, void *out, size_t len, size_t out_len);
ssize_t __recv_chk(int fd, void *out, size_t len, size_t out_len, int flags);
ssize_t __recvfrom_chk(int fd, void *out, size_t len, size_t out_len, int flags,
                       struct sockaddr *address, socklen_t *address_len);
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t fds_len);
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                const sigset_t *mask, size_t fds_len);

/* clang-format off */
#define SW_REAL_FUNCTIONS(X)                                                                       \
    X(socket) X(bind) X(listen) X(accept) X(accept4) X(connect) X(shutdown)                        \
    X(getsockname) X(getpeername) X(getsockopt) X(setsockopt)                                      \
    X(close) X(close_range) X(fclose) X(dup) X(dup2) X(dup3) X(fcntl) X(fcntl64) X(ioctl)          \
    X(read) X(__read_chk) X(readv) X(recv) X(__recv_chk) X(recvfrom) X(__recvfrom_chk) X(recvmsg)  \
    X(recvmmsg) X(write) X(writev) X(send) X(sendto) X(sendmsg) X(sendmmsg)                        \
    X(sendfile) X(sendfile64) X(splice)                                                            \
    X(poll) X(__poll_chk) X(ppoll) X(__ppoll_chk) X(select) X(pselect)                             \
    X(epoll_create) X(epoll_create1) X(epoll_ctl) X(epoll_wait) X(epoll_pwait) X(epoll_pwait2)  \
    X(fork) X(daemon) X(socketpair)
/* clang-format on */

enum sw_real {
#define SW_REAL_ID(name) SW_REAL_##name,
    SW_REAL_FUNCTIONS(SW_REAL_ID)
#undef SW_REAL_ID
        SW_REAL_COUNT
};

extern void *_Atomic sw_real_table[SW_REAL_COUNT];
void *sw_real_resolve(enum sw_real function);

static inline void *sw_real_get(enum sw_real function)
{
    void *found = atomic_load_explicit(&sw_real_table[function], memory_order_relaxed);
    return __builtin_expect(found != NULL, 1) ? found : sw_real_resolve(function);
}

#define SW_REAL(name) ((__typeof__(&name))sw_real_get(SW_REAL_##name))

/* Marks a function that takes the place of libc's. */
#define SW_HOOK __attribute__((visibility("default")))

#endif
