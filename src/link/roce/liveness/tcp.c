/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/liveness/tcp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/socket.h"
#include "link/roce/port/path.h"

#define BACKLOG 64
#define KEEPALIVE_S 1
#define KEEPALIVES 4

static int tcp_open_socket(bool is_ipv4)
{
    const int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    const int fd = (int)syscall(SYS_socket, is_ipv4 ? AF_INET : AF_INET6, kind, IPPROTO_TCP);
    if (fd >= 0 && !is_ipv4)
        sw_socket_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    return fd < 0 ? -errno : sw_fd_own(fd);
}

int sw_tcp_listen(bool is_ipv4, uint16_t *port)
{
    static const struct in6_addr any_v4 = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    struct sockaddr_in6 own;
    struct in6_addr address;
    socklen_t len = sw_roce_sockaddr(is_ipv4 ? &any_v4 : &in6addr_any, 0, 0, &own);
    const int fd = tcp_open_socket(is_ipv4);
    if (fd < 0)
        return fd;
    if (syscall(SYS_bind, fd, &own, len) || syscall(SYS_listen, fd, BACKLOG))
        return sw_socket_fail(fd);
    len = sizeof(own);
    if (syscall(SYS_getsockname, fd, &own, &len))
        return sw_socket_fail(fd);
    sw_roce_address(&own, &address, port);
    return fd;
}

static void keep_alive(int fd)
{
    sw_socket_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    sw_socket_keep_alive(fd, KEEPALIVE_S, KEEPALIVES);
    sw_socket_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SW_TCP_SILENCE_MS);
}

int sw_tcp_connect(const struct in6_addr *source, const struct in6_addr *dest, uint16_t port,
                   uint32_t ifindex)
{
    struct sockaddr_in6 own, peer;
    const int fd = tcp_open_socket(sw_roce_is_ipv4(dest));
    if (fd < 0)
        return fd;
    const socklen_t own_len = sw_roce_sockaddr(source, 0, ifindex, &own);
    const socklen_t peer_len = sw_roce_sockaddr(dest, port, ifindex, &peer);
    keep_alive(fd);
    sw_socket_set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (syscall(SYS_bind, fd, &own, own_len) ||
        (syscall(SYS_connect, fd, &peer, peer_len) && errno != EINPROGRESS))
        return sw_socket_fail(fd);
    return fd;
}

int sw_tcp_accept(int listener, struct in6_addr *own, struct in6_addr *peer)
{
    struct sockaddr_in6 name;
    socklen_t len = sizeof(name);
    uint16_t port;
    const int fd =
        sw_fd_own((int)syscall(SYS_accept4, listener, &name, &len, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd < 0)
        return -errno;
    sw_roce_address(&name, peer, &port);
    len = sizeof(name);
    if (syscall(SYS_getsockname, fd, &name, &len))
        return sw_socket_fail(fd);
    sw_roce_address(&name, own, &port);
    keep_alive(fd);
    return fd;
}

int sw_tcp_error(int fd)
{
    int error = 0;
    socklen_t len = sizeof(error);
    return syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &error, &len) ? -errno : -error;
}

uint64_t sw_tcp_cookie(int fd)
{
    uint64_t cookie = 0;
    socklen_t len = sizeof(cookie);
    return syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) ? 0 : cookie;
}

bool sw_tcp_is_acknowledged(int fd)
{
    int unacknowledged = 0;
    return ioctl(fd, SIOCOUTQ, &unacknowledged) == 0 && !unacknowledged;
}

uint64_t sw_tcp_rtt_ns(int fd)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    if (syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &len) ||
        info.tcpi_min_rtt == UINT32_MAX)
        return 0;
    return info.tcpi_min_rtt * SW_NS_PER_US;
}

int sw_tcp_send(int fd, const void *bytes, size_t len)
{
    const long done =
        syscall(SYS_sendto, fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, (socklen_t)0);
    return done < 0 ? -errno : (int)done;
}

int sw_tcp_receive(int fd, void *bytes, size_t room)
{
    const long done = syscall(SYS_recvfrom, fd, bytes, room, MSG_DONTWAIT, NULL, NULL);
    return done < 0 ? -errno : (int)done;
}
