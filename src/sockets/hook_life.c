/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of the calls by which sockets come, meet, are copied, set and go. */
#include <errno.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "base/clock.h"
#include "sockets/epoll.h"
#include "sockets/io.h"
#include "sockets/meet.h"
#include "sockets/rdma.h"
#include "sockets/real.h"

SW_HOOK int socket(int domain, int type, int protocol)
{
    int fd = SW_REAL(socket)(domain, type, protocol);
    if (fd < 0)
        return fd;
    sw_table_clear(fd); /* closed unseen */
    if ((domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_STREAM &&
        (protocol == 0 || protocol == IPPROTO_TCP)) {
        struct sw_sock *sock = sw_sock_new(fd, domain, type & SOCK_NONBLOCK);
        if (sock)
            sw_sock_put(sock);
    }
    return fd;
}

SW_HOOK int connect(int fd, const struct sockaddr *address, socklen_t len)
{
    struct sw_sock *sock = sw_sock_get(fd);
    if (!sock)
        return SW_REAL(connect)(fd, address, len);
    int result = sw_meet_connect(sock, fd, address, len);
    int saved_errno = errno;
    sw_sock_put(sock);
    errno = saved_errno;
    return result;
}

SW_HOOK int listen(int fd, int backlog)
{
    struct sw_sock *sock = sw_sock_get(fd);
    if (!sock)
        return SW_REAL(listen)(fd, backlog);
    int result = sw_meet_listen(sock, fd, backlog);
    sw_sock_put(sock);
    return result;
}

static int accept_any(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
    struct sw_sock *sock = sw_sock_get(fd);
    if (!sock)
        return SW_REAL(accept4)(fd, address, len, flags);
    int got = sw_sock_way(sock) == SW_WAY_LISTEN ? sw_meet_accept(sock, fd, address, len, flags)
                                                 : SW_REAL(accept4)(fd, address, len, flags);
    sw_sock_put(sock);
    return got;
}

SW_HOOK int accept(int fd, struct sockaddr *address, socklen_t *len)
{
    return accept_any(fd, address, len, 0);
}

SW_HOOK int accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
    return accept_any(fd, address, len, flags);
}

SW_HOOK int shutdown(int fd, int how)
{
    struct sw_sock *sock = sw_sock_get_rdma(fd);
    if (!sock)
        return SW_REAL(shutdown)(fd, how);
    int result = sw_io_shutdown(sock, how);
    sw_sock_put(sock);
    return result;
}

SW_HOOK int getsockname(int fd, struct sockaddr *address, socklen_t *len)
{
    struct sw_sock *sock = sw_sock_get_rdma(fd);
    if (!sock)
        return SW_REAL(getsockname)(fd, address, len);
    int result = sw_meet_name(sock, false, address, len);
    sw_sock_put(sock);
    return result;
}

SW_HOOK int getpeername(int fd, struct sockaddr *address, socklen_t *len)
{
    struct sw_sock *sock = sw_sock_get_rdma(fd);
    if (!sock)
        return SW_REAL(getpeername)(fd, address, len);
    int result = sw_meet_name(sock, true, address, len);
    sw_sock_put(sock);
    return result;
}

/* A connection by RDMA is there or not: there is no error that waits to be asked for. */
SW_HOOK int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    struct sw_sock *sock = level == SOL_SOCKET && name == SO_ERROR ? sw_sock_get_rdma(fd) : NULL;
    if (!sock)
        return SW_REAL(getsockopt)(fd, level, name, value, len);
    int none = 0;
    memcpy(value, &none, *len < sizeof(none) ? *len : sizeof(none));
    if (*len > sizeof(none))
        *len = sizeof(none);
    atomic_store(&sock->connecting, false);
    sw_sock_put(sock);
    return 0;
}

static void note_timeout(int fd, int name, const void *value, socklen_t len)
{
    struct sw_sock *sock = sw_sock_get(fd);
    struct timeval time;
    if (sock && len >= sizeof(time)) {
        memcpy(&time, value, sizeof(time));
        uint64_t ns = (uint64_t)time.tv_sec * SW_NS_PER_S + (uint64_t)time.tv_usec * SW_NS_PER_US;
        *(name == SO_RCVTIMEO ? &sock->receive_timeout_ns : &sock->send_timeout_ns) = ns;
    }
    if (sock)
        sw_sock_put(sock);
}

/* The kernel's socket keeps the options; those that RDMA has a use for are noted. */
SW_HOOK int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    int result = SW_REAL(setsockopt)(fd, level, name, value, len);
    if (result == 0 && level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO))
        note_timeout(fd, name, value, len);
    return result;
}

SW_HOOK int close(int fd)
{
    sw_table_clear(fd);
    return SW_REAL(close)(fd);
}

/* libc closes the descriptor of a stream by itself. */
SW_HOOK int fclose(FILE *stream)
{
    int fd = stream ? fileno(stream) : -1;
    int saved_errno = errno;
    if (fd >= 0 && sw_table_peek(fd)) {
        fflush(stream);
        sw_table_clear(fd);
    }
    errno = saved_errno;
    return SW_REAL(fclose)(stream);
}

SW_HOOK int close_range(unsigned first, unsigned last, int flags)
{
    if (!(flags & CLOSE_RANGE_CLOEXEC) && first <= last)
        sw_table_clear_range(first, last);
    return SW_REAL(close_range)(first, last, flags);
}

/* The new descriptor is what the old one is. */
static int note_duplicate(int old, int fd)
{
    if (fd < 0 || fd == old || sw_table_is_foreign())
        return fd;
    struct sw_file *file = sw_table_peek(old);
    file = file ? sw_table_take(old, file->kind) : NULL;
    sw_table_clear(fd);
    if (file) {
        sw_table_set(fd, file);
        sw_file_put(file);
    }
    return fd;
}

SW_HOOK int dup(int old)
{
    return note_duplicate(old, SW_REAL(dup)(old));
}

SW_HOOK int dup2(int old, int fd)
{
    return note_duplicate(old, SW_REAL(dup2)(old, fd));
}

SW_HOOK int dup3(int old, int fd, int flags)
{
    return note_duplicate(old, SW_REAL(dup3)(old, fd, flags));
}

static int noted_fcntl(int fd, int cmd, void *argument, int result)
{
    if (result < 0)
        return result;
    if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
        return note_duplicate(fd, result);
    struct sw_sock *sock = cmd == F_SETFL ? sw_sock_get(fd) : NULL;
    if (sock) {
        atomic_store(&sock->nonblock, ((intptr_t)argument & O_NONBLOCK) != 0);
        sw_sock_put(sock);
    }
    return result;
}

SW_HOOK int fcntl(int fd, int cmd, ...)
{
    va_list arguments;
    va_start(arguments, cmd);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return noted_fcntl(fd, cmd, argument, SW_REAL(fcntl)(fd, cmd, argument));
}

SW_HOOK int fcntl64(int fd, int cmd, ...)
{
    va_list arguments;
    va_start(arguments, cmd);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return noted_fcntl(fd, cmd, argument, SW_REAL(fcntl64)(fd, cmd, argument));
}

SW_HOOK int ioctl(int fd, unsigned long request, ...)
{
    enum { WAITING_MAX = 1 << 20 };
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    struct sw_sock *sock = request == FIONREAD ? sw_sock_get_rdma(fd) : NULL;
    if (sock) {
        *(int *)argument = (int)sw_io_waiting(sock, WAITING_MAX);
        sw_sock_put(sock);
        return 0;
    }
    int result = SW_REAL(ioctl)(fd, request, argument);
    sock = result == 0 && request == FIONBIO ? sw_sock_get(fd) : NULL;
    if (sock) {
        atomic_store(&sock->nonblock, *(int *)argument != 0);
        sw_sock_put(sock);
    }
    return result;
}

SW_HOOK int socketpair(int domain, int type, int protocol, int fds[2])
{
    int result = SW_REAL(socketpair)(domain, type, protocol, fds);
    if (result == 0)
        sw_rdma_saw_pair(fds);
    return result;
}

SW_HOOK pid_t fork(void)
{
    sw_sock_before_fork();
    return SW_REAL(fork)();
}

SW_HOOK int daemon(int keep_folder, int keep_streams)
{
    sw_sock_before_fork();
    return SW_REAL(daemon)(keep_folder, keep_streams);
}
