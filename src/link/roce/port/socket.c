/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/port/socket.h"

#include <errno.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fds.h"
#include "link/roce/port/path.h"

/* The kernel doubles it for its own use and cuts it to net.core.[rw]mem_max, but for root. */
#define SOCKET_BUFFER_BYTES (8 << 20)

bool sw_socket_set(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

int sw_socket_udp(bool is_ipv4)
{
    int fd = sw_fd_own(
        socket(is_ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -errno;
    if (!is_ipv4 && !sw_socket_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1)) {
        int err = errno;
        close(fd);
        return -err;
    }
    if (!sw_socket_set(fd, SOL_SOCKET, SO_RCVBUFFORCE, SOCKET_BUFFER_BYTES))
        sw_socket_set(fd, SOL_SOCKET, SO_RCVBUF, SOCKET_BUFFER_BYTES);
    if (!sw_socket_set(fd, SOL_SOCKET, SO_SNDBUFFORCE, SOCKET_BUFFER_BYTES))
        sw_socket_set(fd, SOL_SOCKET, SO_SNDBUF, SOCKET_BUFFER_BYTES);
    return fd;
}

/* Whether the kernel tells something of each message. */
static bool tell_option(int fd, bool is_ipv4, int ipv4_option, int ipv6_option, bool tells)
{
    return is_ipv4 ? sw_socket_set(fd, IPPROTO_IP, ipv4_option, tells)
                   : sw_socket_set(fd, IPPROTO_IPV6, ipv6_option, tells);
}

static bool tell_own_address(int fd, bool is_ipv4, bool tells)
{
    return tell_option(fd, is_ipv4, IP_PKTINFO, IPV6_RECVPKTINFO, tells);
}

static bool tell_class(int fd, bool is_ipv4, bool tells)
{
    return tell_option(fd, is_ipv4, IP_RECVTOS, IPV6_RECVTCLASS, tells);
}

static bool tell_hop_limit(int fd, bool is_ipv4, bool tells)
{
    return tell_option(fd, is_ipv4, IP_RECVTTL, IPV6_RECVHOPLIMIT, tells);
}

void sw_socket_tell_class_only(int fd, bool is_ipv4)
{
    tell_own_address(fd, is_ipv4, false);
    tell_hop_limit(fd, is_ipv4, false);
}

/* The order matters: packets that came before the kernel was told to join none may be one message,
 * and their lengths could not be asked for later. */
bool sw_socket_tell_bytes_only(int fd, bool is_ipv4)
{
    sw_socket_set(fd, IPPROTO_UDP, UDP_GRO, 0);
    if (recv(fd, NULL, 0, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN) {
        sw_socket_set(fd, IPPROTO_UDP, UDP_GRO, 1);
        return false;
    }
    tell_class(fd, is_ipv4, false);
    return true;
}

void sw_socket_tell_runs(int fd, bool is_ipv4)
{
    sw_socket_set(fd, IPPROTO_UDP, UDP_GRO, 1);
    tell_class(fd, is_ipv4, true);
}

int sw_socket_receiving(bool is_ipv4, const struct in6_addr *address, uint16_t udp_port,
                        uint32_t ifindex)
{
    int fd = sw_socket_udp(is_ipv4);
    if (fd < 0)
        return fd;
    struct sockaddr_in6 own;
    unsigned int len = sw_roce_sockaddr(address, udp_port, ifindex, &own);
    const bool can_tell = tell_own_address(fd, is_ipv4, true) && tell_class(fd, is_ipv4, true) &&
                          tell_hop_limit(fd, is_ipv4, true);
    sw_socket_set(fd, IPPROTO_UDP, UDP_GRO, 1);
    if (!is_ipv4) /* rdma_rxe sends none (RFC 6936); the ICRC covers as much */
        sw_socket_set(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
    if (!can_tell || !sw_socket_set(fd, SOL_SOCKET, SO_REUSEPORT, 1) ||
        bind(fd, (struct sockaddr *)&own, len)) {
        int err = errno;
        close(fd);
        return -err;
    }
    return fd;
}
