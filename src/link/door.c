/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/door.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fds.h"
#include "link/faults/live.h"
#include "link/paired/socket.h"
#include "link/roce/liveness/tcp.h"
#include "link/roce/mad.h"
#include "link/roce/port/path.h"
#include "wire/packet.h"

static struct in6_addr address_of(const union ibv_gid *gid)
{
    struct in6_addr address;
    memcpy(&address, gid->raw, sizeof(address));
    return address;
}

static void keep_socket(struct sw_door *door, int fd)
{
    door->fd = fd < 0 ? -1 : fd;
    door->cookie = fd < 0 ? 0 : sw_tcp_cookie(fd);
}

static bool set_option(int fd, int level, int name, int value)
{
    return !syscall(SYS_setsockopt, fd, level, name, &value, sizeof(value));
}

/* Not connected: the kernel would give such a socket's IPv4 packets an identification that the ICRC
 * covers and nobody knows. With IP_RECVERR it is told of ICMP all the same. */
static bool bind_udp(struct sw_door *door, uint16_t *port)
{
    struct sockaddr_in6 own;
    struct in6_addr source = address_of(&door->source);
    const bool is_ipv4 = sw_roce_is_ipv4(&source);
    const int level = is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6, fd = door->fd;
    socklen_t len = sw_roce_sockaddr(&source, 0, door->ifindex, &own);
    if (!set_option(fd, level, is_ipv4 ? IP_RECVERR : IPV6_RECVERR, 1) ||
        !set_option(fd, level, is_ipv4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
                    is_ipv4 ? IP_PMTUDISC_DO : IPV6_PMTUDISC_DO) ||
        syscall(SYS_bind, fd, &own, len) || syscall(SYS_getsockname, fd, &own, &len))
        return false;
    sw_roce_address(&own, &source, port);
    return true;
}

static bool send_udp(const struct sw_door *door, uint16_t port, const uint8_t mad[SW_MAD_BYTES])
{
    const struct in6_addr source = address_of(&door->source), dest = address_of(&door->dest);
    struct sockaddr_in6 peer;
    struct sw_icrc_flow flow;
    uint8_t packet[SW_ROCE_MAD_PACKET_BYTES];
    sw_roce_icrc(&source, &dest, port, SW_ROCE_PORT, &flow);
    const size_t len = sw_roce_mad_packet(&flow, mad, packet);
    const socklen_t peer_len = sw_roce_sockaddr(&dest, SW_ROCE_PORT, door->ifindex, &peer);
    return syscall(SYS_sendto, door->fd, packet, len, MSG_DONTWAIT | MSG_NOSIGNAL, &peer,
                   peer_len) == (long)len;
}

/* Faults on purpose are not to be passed by. */
bool sw_door_probe(struct sw_door *door, const uint8_t mad[SW_MAD_BYTES])
{
    uint16_t port;
    const struct in6_addr dest = address_of(&door->dest);
    const int kind = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    const int family = sw_roce_is_ipv4(&dest) ? AF_INET : AF_INET6;
    sw_door_close(door);
    if (sw_faults_live)
        return false;
    keep_socket(door, sw_fd_own((int)syscall(SYS_socket, family, kind, 0)));
    if (door->fd >= 0 && bind_udp(door, &port) && send_udp(door, port, mad))
        return true;
    sw_door_close(door);
    return false;
}

/* Whether it is refused at once. */
static bool open_tcp(struct sw_door *door)
{
    const struct in6_addr source = address_of(&door->source), dest = address_of(&door->dest);
    const uint16_t port = sw_paired_port() ? sw_paired_port() : SW_ROCE_PORT;
    const int fd = sw_tcp_connect(&source, &dest, port, door->ifindex);
    door->is_tcp = true;
    keep_socket(door, fd);
    return fd == -ECONNREFUSED;
}

/* A program may have closed it, and have another file at its number since. */
void sw_door_close(struct sw_door *door)
{
    if (door->fd >= 0 && sw_tcp_cookie(door->fd) == door->cookie)
        close(door->fd);
    door->fd = -1;
    door->is_tcp = false;
}

bool sw_door_look(struct sw_door *door)
{
    if (door->fd < 0 || sw_tcp_cookie(door->fd) != door->cookie ||
        sw_tcp_error(door->fd) != -ECONNREFUSED)
        return false;
    if (door->is_tcp)
        return true;
    sw_door_close(door);
    return open_tcp(door);
}
