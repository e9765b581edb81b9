/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/iwarp/socket.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/socket.h"

#define SEGMENT_LEAST 536u /* RFC 9293 3.7.1 */

static int iwarp_open_socket(sa_family_t family)
{
    const int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    const int fd = (int)syscall(SYS_socket, family, kind, IPPROTO_TCP);
    return fd < 0 ? -errno : sw_fd_own(fd);
}

static void clear_port(struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET)
        ((struct sockaddr_in *)address)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)address)->sin6_port = 0;
}

static int open_from(const struct sockaddr *own, socklen_t own_len, const struct sockaddr *peer,
                     socklen_t peer_len)
{
    const int fd = iwarp_open_socket(peer->sa_family);
    if (fd < 0)
        return fd;
    sw_socket_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    sw_socket_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    sw_socket_set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1); /* port 0: of all that peer allows */
    if (syscall(SYS_bind, fd, own, own_len) ||
        (syscall(SYS_connect, fd, peer, peer_len) && errno != EINPROGRESS))
        return sw_socket_fail(fd);
    return fd;
}

/* The port that an ID has may be that of another program's TCP connection, or the last connection
 * from it to this peer has ended within the minute of TIME-WAIT: then any. */
int sw_iwarp_socket_connect(const struct sockaddr *own, socklen_t own_len,
                            const struct sockaddr *peer, socklen_t peer_len)
{
    struct sockaddr_storage any = {0};
    const int fd = open_from(own, own_len, peer, peer_len);
    if (fd != -EADDRINUSE && fd != -EACCES && fd != -EADDRNOTAVAIL)
        return fd;
    memcpy(&any, own, own_len);
    clear_port(&any);
    return open_from((const struct sockaddr *)&any, own_len, peer, peer_len);
}

int sw_iwarp_socket_listen(const struct sockaddr *own, socklen_t len, int backlog, bool is_v6only)
{
    const int fd = iwarp_open_socket(own->sa_family);
    if (fd < 0)
        return fd;
    sw_socket_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (own->sa_family == AF_INET6)
        sw_socket_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, is_v6only);
    if (syscall(SYS_bind, fd, own, len) || syscall(SYS_listen, fd, backlog))
        return sw_socket_fail(fd);
    return fd;
}

bool sw_iwarp_socket_is_free(uint16_t port)
{
    const struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    const struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = iwarp_open_socket(AF_INET6);
    const bool has_v6 = fd >= 0;
    if (!has_v6)
        fd = iwarp_open_socket(AF_INET);
    if (fd < 0)
        return true;
    sw_socket_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (has_v6)
        sw_socket_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    const bool is_free = !(has_v6 ? syscall(SYS_bind, fd, &any6, sizeof(any6))
                                  : syscall(SYS_bind, fd, &any4, sizeof(any4))) ||
                         errno != EADDRINUSE;
    close(fd);
    return is_free;
}

int sw_iwarp_socket_accept(int listener, struct sockaddr_storage *own,
                           struct sockaddr_storage *peer)
{
    socklen_t len = sizeof(*peer);
    const int fd = (int)syscall(SYS_accept4, listener, peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return -errno;
    len = sizeof(*own);
    const int high = sw_fd_own(fd);
    if (syscall(SYS_getsockname, high, own, &len))
        return sw_socket_fail(high);
    sw_socket_set(high, IPPROTO_TCP, TCP_NODELAY, 1);
    return high;
}

uint32_t sw_iwarp_socket_segment(int fd)
{
    int segment = 0;
    socklen_t len = sizeof(segment);
    if (syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_MAXSEG, &segment, &len) ||
        segment < (int)SEGMENT_LEAST)
        return SEGMENT_LEAST;
    return (uint32_t)segment;
}

static bool is_plain_tcp(int fd)
{
    int protocol = 0;
    socklen_t len = sizeof(protocol);
    return !syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) &&
           protocol == IPPROTO_TCP; /* a path of MPTCP has a pace of its own */
}

bool sw_iwarp_socket_paces(int fd)
{
    char name[16] = ""; /* TCP_CA_NAME_MAX */
    socklen_t len = sizeof(name);
    return !syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) &&
           !strncmp(name, "bbr", 3) && is_plain_tcp(fd);
}

bool sw_iwarp_socket_pace(int fd, uint64_t *rate, uint32_t *segment)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    if (syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &len))
        return false;
    *rate = info.tcpi_pacing_rate;
    *segment = info.tcpi_snd_mss;
    return true;
}

static ssize_t result_of(long done)
{
    return done < 0 ? -errno : done;
}

ssize_t sw_iwarp_socket_send(int fd, const void *bytes, size_t len)
{
    const int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    return result_of(syscall(SYS_sendto, fd, bytes, len, flags, NULL, (socklen_t)0));
}

ssize_t sw_iwarp_socket_send_pieces(int fd, struct iovec *pieces, uint32_t count)
{
    const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
    return result_of(syscall(SYS_sendmsg, fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

ssize_t sw_iwarp_socket_receive(int fd, void *bytes, size_t room)
{
    return result_of(syscall(SYS_recvfrom, fd, bytes, room, MSG_DONTWAIT, NULL, NULL));
}

ssize_t sw_iwarp_socket_receive_pieces(int fd, struct iovec *pieces, uint32_t count)
{
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
    return result_of(syscall(SYS_recvmsg, fd, &message, MSG_DONTWAIT));
}

void sw_iwarp_socket_end(int fd)
{
    syscall(SYS_shutdown, fd, SHUT_WR);
}

void sw_iwarp_socket_abort(int fd)
{
    const struct linger at_once = {.l_onoff = 1};
    syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fd);
}
