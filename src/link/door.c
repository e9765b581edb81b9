/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/door.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fds.h"
#include "link/paired/socket.h"
#include "link/roce/liveness/tcp.h"
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
    door->is_vain = fd < 0;
}

/* An empty datagram is dropped by whoever has the port. */
static void open_udp(struct sw_door *door)
{
    struct sockaddr_in6 own, peer;
    const struct in6_addr source = address_of(&door->source), dest = address_of(&door->dest);
    const int kind = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    const int family = sw_roce_is_ipv4(&dest) ? AF_INET : AF_INET6;
    const int fd = sw_fd_own((int)syscall(SYS_socket, family, kind, 0));
    const socklen_t own_len = sw_roce_sockaddr(&source, 0, door->ifindex, &own);
    const socklen_t peer_len = sw_roce_sockaddr(&dest, SW_ROCE_PORT, door->ifindex, &peer);
    keep_socket(door, fd);
    if (fd >= 0 &&
        (syscall(SYS_bind, fd, &own, own_len) || syscall(SYS_connect, fd, &peer, peer_len))) {
        close(fd);
        keep_socket(door, -1);
    }
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

void sw_door_open(struct sw_door *door, const union ibv_gid *source, const union ibv_gid *dest,
                  uint32_t ifindex)
{
    *door = (struct sw_door){.source = *source, .dest = *dest, .ifindex = ifindex, .fd = -1};
    open_udp(door);
}

/* A program may have closed it, and have another file at its number since. */
void sw_door_close(struct sw_door *door)
{
    if (door->fd >= 0 && sw_tcp_cookie(door->fd) == door->cookie)
        close(door->fd);
    door->fd = -1;
}

bool sw_door_knock(struct sw_door *door)
{
    if (door->is_vain || door->fd < 0 || sw_tcp_cookie(door->fd) != door->cookie)
        return false;
    if (door->is_tcp)
        return sw_tcp_error(door->fd) == -ECONNREFUSED;
    if (sw_tcp_send(door->fd, "", 0) != -ECONNREFUSED)
        return false;
    sw_door_close(door);
    return open_tcp(door);
}
