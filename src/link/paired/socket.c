/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/paired/socket.h"

#include <errno.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/socket.h"
#include "link/roce/port/path.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

#define USUAL_PORT 4791 /* of RoCEv2 over UDP; the same number of TCP is nobody's */
#define BACKLOG 1024
#define KEEPALIVE_S 5
#define KEEPALIVES 6
#define ANSWER_ROUNDS 4                  /* that an answer is waited for; a lost segment is none */
#define BUSY_MAX_NS (200 * SW_NS_PER_MS) /* of that, for want of a processor */

static struct {
    uint16_t port;
    bool is_multipath;
    const char *congestion; /* NULL: the system's */
} settings = {.port = USUAL_PORT};

/* ---- what the user says ---- */

static void read_port(void)
{
    const char *text = getenv("SIDEWIRE_TCP_PORT");
    char *end;
    settings.port = USUAL_PORT;
    if (!text || !*text)
        return;
    const unsigned long port = strtoul(text, &end, 10);
    if (*end || port < 1 || port > UINT16_MAX)
        sw_warn("SIDEWIRE_TCP_PORT=%s is no port; using %u", text, USUAL_PORT);
    else
        settings.port = (uint16_t)port;
}

static bool has_congestion(const char *name)
{
    const int fd = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0)
        return false;
    const bool has =
        syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name)) == 0;
    syscall(SYS_close, fd);
    return has;
}

static void read_congestion(void)
{
    const char *name = getenv("SIDEWIRE_TCP_CC");
    settings.congestion = NULL;
    if (!name || !*name)
        return;
    if (has_congestion(name))
        settings.congestion = name;
    else
        sw_error("SIDEWIRE_TCP_CC=%s: the kernel does not have it, or not for this user "
                 "(/proc/sys/net/ipv4/tcp_allowed_congestion_control lists those); using its own",
                 name);
}

void sw_paired_read_settings(void)
{
    const char *multipath = getenv("SIDEWIRE_TCP_MPTCP");
    read_port();
    read_congestion();
    settings.is_multipath = multipath && !strcmp(multipath, "on");
    if (multipath && *multipath && strcmp(multipath, "on") != 0 && strcmp(multipath, "off") != 0)
        sw_warn("SIDEWIRE_TCP_MPTCP=%s is neither on nor off; using off", multipath);
}

uint16_t sw_paired_port(void)
{
    return settings.port;
}

/* ---- sockets ---- */

static int make_socket(sa_family_t family)
{
    const int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    int fd = -1;
    if (settings.is_multipath)
        fd = (int)syscall(SYS_socket, family, kind, IPPROTO_MPTCP);
    if (fd < 0) /* the kernel has no MPTCP, or it is not enabled: plain TCP */
        fd = (int)syscall(SYS_socket, family, kind, IPPROTO_TCP);
    return fd < 0 ? -errno : sw_fd_own(fd);
}

static void set_stream_options(int fd)
{
    const char *name = settings.congestion;
    sw_socket_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    sw_socket_keep_alive(fd, KEEPALIVE_S, KEEPALIVES);
    if (name)
        syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name));
}

static int socket_bind_at(const struct in6_addr *any)
{
    struct sockaddr_in6 own;
    const unsigned int len = sw_roce_sockaddr(any, settings.port, 0, &own);
    const int fd = make_socket(own.sin6_family);
    if (fd < 0)
        return fd;
    if (own.sin6_family == AF_INET6)
        sw_socket_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0); /* and IPv4 */
    if (!sw_socket_set(fd, SOL_SOCKET, SO_REUSEPORT, 1) ||
        !sw_socket_set(fd, SOL_SOCKET, SO_REUSEADDR, 1) || syscall(SYS_bind, fd, &own, len))
        return sw_socket_fail(fd);
    return fd;
}

static int bind_everywhere(void)
{
    const struct in6_addr any = IN6ADDR_ANY_INIT;
    const struct in6_addr any_ipv4 = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    const int fd = socket_bind_at(&any);
    return fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL ? socket_bind_at(&any_ipv4) : fd;
}

int sw_paired_listen(void)
{
    const int fd = bind_everywhere();
    return fd >= 0 && syscall(SYS_listen, fd, BACKLOG) ? sw_socket_fail(fd) : fd;
}

bool sw_paired_is_kept_out(void)
{
    const int fd = bind_everywhere();
    if (fd >= 0)
        close(fd);
    return fd == -EADDRINUSE;
}

int sw_paired_accept(int listener)
{
    const int fd = (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return -errno;
    const int high = sw_fd_own(fd);
    set_stream_options(high);
    return high;
}

int sw_paired_connect(const struct in6_addr *own, const struct in6_addr *peer, uint32_t scope)
{
    struct sockaddr_in6 from, to;
    const unsigned int from_len = sw_roce_sockaddr(own, 0, scope, &from);
    const unsigned int to_len = sw_roce_sockaddr(peer, settings.port, scope, &to);
    const int fd = make_socket(to.sin6_family);
    if (fd < 0)
        return fd;
    sw_socket_set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    set_stream_options(fd);
    if (syscall(SYS_bind, fd, &from, from_len) ||
        (syscall(SYS_connect, fd, &to, to_len) && errno != EINPROGRESS))
        return sw_socket_fail(fd);
    return fd;
}

static bool is_stream(int fd)
{
    int type = 0, protocol = 0;
    socklen_t len = sizeof(int);
    return !syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_STREAM &&
           !syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) &&
           (protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP);
}

bool sw_paired_ends(int fd, struct in6_addr *own, struct in6_addr *peer)
{
    struct sockaddr_in6 ends[2] = {0};
    socklen_t len = sizeof(ends[0]);
    uint16_t port;
    if (!is_stream(fd) || syscall(SYS_getsockname, fd, &ends[0], &len))
        return false;
    len = sizeof(ends[1]);
    if (syscall(SYS_getpeername, fd, &ends[1], &len))
        return false;
    sw_roce_address(&ends[0], own, &port);
    sw_roce_address(&ends[1], peer, &port);
    return true;
}

uint32_t sw_paired_scope(int fd)
{
    struct sockaddr_in6 peer = {0};
    socklen_t len = sizeof(peer);
    if (syscall(SYS_getpeername, fd, &peer, &len) || peer.sin6_family != AF_INET6)
        return 0;
    return peer.sin6_scope_id;
}

void sw_paired_set_patience(int fd, uint64_t limit_ns)
{
    const uint64_t limit_ms = limit_ns / SW_NS_PER_MS;
    sw_socket_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
                  limit_ms > INT32_MAX ? INT32_MAX : (int)limit_ms);
}

/* As TCP has measured it; 0: it has not. */
static uint64_t round_trip_ns(int fd)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    if (syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &len))
        return 0;
    return (uint64_t)info.tcpi_rtt * SW_NS_PER_US;
}

/* A process that stood still has seen late that it is connected: that says little of the peer. */
uint64_t sw_paired_answer_ns(int fd, uint64_t called_ns, uint64_t now_ns)
{
    const uint64_t took_ns = ANSWER_ROUNDS * (now_ns - called_ns);
    const uint64_t round_ns = ANSWER_ROUNDS * round_trip_ns(fd);
    return round_ns ? sw_max_u64(round_ns, sw_min_u64(took_ns, BUSY_MAX_NS)) : took_ns;
}

int sw_paired_error(int fd)
{
    int err = 0;
    socklen_t len = sizeof(err);
    return syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &err, &len) ? errno : err;
}
