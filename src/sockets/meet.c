/* SPDX-License-Identifier: BSD-2-Clause */
#include "sockets/meet.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/probe.h"
#include "sockets/epoll.h"
#include "sockets/peers.h"
#include "sockets/rdma.h"
#include "sockets/real.h"
#include "sockets/wait.h"
#include "sockets/way.h"

/* How long a host is asked that may know nothing of RDMA. On this host whoever knows nothing of it
 * refuses at once: no answer means that the server is stopped, or waits for a processor. */
#define ANSWER_NS (300 * SW_NS_PER_MS)
#define ANSWER_HERE_NS (3 * SW_NS_PER_S)

/* Copies an address whose family RDMA can reach; IPv4 inside of IPv6 becomes IPv4. */
static bool plain_address(const struct sockaddr *address, socklen_t len, union sw_address *out)
{
    if (!address || len < sizeof(struct sockaddr_in) || len > sizeof(struct sockaddr_storage))
        return false;
    memset(out, 0, sizeof(*out));
    memcpy(out, address, len < sizeof(*out) ? len : sizeof(*out));
    if (out->sa.sa_family == AF_INET)
        return true;
    if (out->sa.sa_family != AF_INET6 || len < sizeof(out->in6))
        return false;
    if (IN6_IS_ADDR_V4MAPPED(&out->in6.sin6_addr)) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = out->in6.sin6_port};
        memcpy(&in.sin_addr, &out->in6.sin6_addr.s6_addr[12], 4);
        memset(out, 0, sizeof(*out));
        out->in = in;
    }
    return true;
}

static socklen_t meet_length_of(const union sw_address *address)
{
    return address->sa.sa_family == AF_INET ? sizeof(address->in) : sizeof(address->in6);
}

static bool meet_is_any(const union sw_address *address)
{
    return address->sa.sa_family == AF_INET ? address->in.sin_addr.s_addr == htonl(INADDR_ANY)
                                            : IN6_IS_ADDR_UNSPECIFIED(&address->in6.sin6_addr);
}

static const char *reason_of(int error)
{
    switch (error) {
    case ECONNREFUSED:
        return "nobody listens there by RDMA";
    case ETIMEDOUT:
        return "no answer by RDMA";
    case ENODEV:
    case EADDRNOTAVAIL:
    case ENETUNREACH:
    case EHOSTUNREACH:
        return "no RDMA device leads there";
    case EADDRINUSE:
        return "another process has this port by RDMA";
    default:
        return strerror(error);
    }
}

/* A new rsocket that never blocks, with the options that matter. Negative errno. */
static int rsocket_new(int domain)
{
    int rs = sw_rdma.rsocket(domain, SOCK_STREAM, 0);
    if (rs < 0)
        return -errno;
    sw_rdma.rfcntl(rs, F_SETFL, O_NONBLOCK);
    return rs;
}

/* The connection is the socket's. The number of an rsocket is that of its channel's descriptor,
 * which librdmacm leaves blocking where it was accepted. */
static void take_rsocket(struct sw_sock *sock, int rs)
{
    sw_rdma.rfcntl(rs, F_SETFL, O_NONBLOCK);
    SW_REAL(fcntl)(rs, F_SETFL, O_NONBLOCK);
    atomic_store(&sock->channel, SW_REAL(fcntl)(rs, F_DUPFD_CLOEXEC, 0));
    atomic_store(&sock->rs, rs);
}

static void rsocket_end(int rs)
{
    sigset_t old;
    sw_rdma_mask(&old);
    sw_rdma.rclose(rs);
    sw_rdma_unmask(&old);
}

/* Waits for the answer. 0 or an errno. */
static int await_answer(int rs, uint64_t limit_ns)
{
    for (;;) {
        struct pollfd one[2] = {{.fd = rs, .events = POLLOUT}};
        if (sw_rdma.rpoll(one, 1, 0) <= 0) {
            if (sw_clock_ns() >= limit_ns)
                return ETIMEDOUT;
            sw_wait_sleep(one, 1, limit_ns);
            continue;
        }
        int error = 0;
        socklen_t len = sizeof(error);
        sw_rdma.rgetsockopt(rs, SOL_SOCKET, SO_ERROR, &error, &len);
        return error ? error : one[0].revents & POLLERR ? ECONNREFUSED : 0;
    }
}

/* Returns the rsocket, or a negative errno. */
static int try_rdma(int fd, const union sw_address *peer, uint64_t answer_ns)
{
    int rs = rsocket_new(peer->sa.sa_family);
    if (rs < 0)
        return rs;
    union sw_address own, local;
    socklen_t len = sizeof(own);
    if (SW_REAL(getsockname)(fd, &own.sa, &len) == 0 && plain_address(&own.sa, len, &local) &&
        local.sa.sa_family == peer->sa.sa_family && local.in.sin_port && !meet_is_any(&local) &&
        sw_rdma.rbind(rs, &local.sa, meet_length_of(&local))) {
        local.in.sin_port = 0; /* taken: the address is what matters */
        sw_rdma.rbind(rs, &local.sa, meet_length_of(&local));
    }
    uint64_t limit_ns = sw_clock_ns() + answer_ns;
    int error = sw_rdma_connect(rs, &peer->sa, meet_length_of(peer)) ? errno : 0;
    if (error == EINPROGRESS)
        error = await_answer(rs, limit_ns);
    if (!error)
        return rs;
    rsocket_end(rs);
    return -error;
}

/* Returns NULL if the socket is connected by RDMA now, or why it is not. */
static const char *connect_rdma(struct sw_sock *sock, int fd, const struct sockaddr *address,
                                socklen_t len)
{
    union sw_address peer;
    if (sw_sockets_reach() == SW_REACH_NOBODY)
        return "SIDEWIRE_SOCKETS=tcp";
    if (!plain_address(address, len, &peer))
        return "no address of IPv4 or IPv6";
    if (sw_sockets_reach() == SW_REACH_HOST && !sw_way_is_here(&peer))
        return "the peer is on another host; run --sockets=hosts asks it for RDMA";
    const char *why = sw_rdma_load();
    if (why)
        return why;
    if (sw_peers_is_silent(&peer))
        return "no answer by RDMA a moment ago";
    sw_peers_begin(sock, &peer);
    if (sw_peers_is_brief(&peer))
        return "the last connections there were brief";
    const enum sw_way way = sw_way_of_peer(&peer, &why);
    const bool is_here = way == SW_WAY_DIRECT;
    int rs = try_rdma(fd, &peer, is_here ? ANSWER_HERE_NS : ANSWER_NS);
    if (rs == -ETIMEDOUT && !is_here)
        sw_peers_note_silent(&peer);
    if (rs < 0)
        return reason_of(-rs);
    take_rsocket(sock, rs);
    sw_way_tell(sock, fd, way, false, why);
    sw_epoll_moved(sock);
    return NULL;
}

int sw_meet_connect(struct sw_sock *sock, int fd, const struct sockaddr *address, socklen_t len)
{
    pthread_mutex_lock(&sock->lock);
    int way = sw_sock_way(sock);
    int result = -1;
    if (sw_way_is_rdma(way)) {
        bool first = atomic_exchange(&sock->connecting, false);
        errno = EISCONN;
        result = first ? 0 : -1;
    } else if (way != SW_WAY_NONE || len < sizeof(*address) || !sw_probe_bytes(address, len) ||
               address->sa_family == AF_UNSPEC) {
        result = SW_REAL(connect)(fd, address, len);
    } else {
        const char *why = connect_rdma(sock, fd, address, len);
        if (!why) {
            /* As TCP has it: a program that does not wait is told when it asks. */
            atomic_store(&sock->connecting, atomic_load(&sock->nonblock));
            errno = EINPROGRESS;
            result = atomic_load(&sock->nonblock) ? -1 : 0;
        } else {
            result = SW_REAL(connect)(fd, address, len);
            if (result == 0 || errno == EINPROGRESS)
                sw_way_tell(sock, fd, SW_WAY_TCP, false, why);
        }
    }
    pthread_mutex_unlock(&sock->lock);
    return result;
}

/* Returns NULL if the socket listens by RDMA, too, or why it does not. */
static const char *listen_rdma(struct sw_sock *sock, int fd)
{
    if (sw_sockets_reach() == SW_REACH_NOBODY)
        return "SIDEWIRE_SOCKETS=tcp";
    const char *why = sw_rdma_load();
    if (why)
        return why;
    if (sw_sock_listeners() >= SW_RDMA_LISTENERS_MAX)
        return "the process listens at three ports by RDMA already";
    union sw_address own;
    socklen_t len = sizeof(own);
    int only = 0, on = 1;
    socklen_t only_len = sizeof(only);
    memset(&own, 0, sizeof(own));
    if (SW_REAL(getsockname)(fd, &own.sa, &len))
        return "it has no address";
    int rs = rsocket_new(own.sa.sa_family);
    if (rs < 0)
        return reason_of(-rs);
    if (own.sa.sa_family == AF_INET6 &&
        SW_REAL(getsockopt)(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, &only_len) == 0 && only)
        sw_rdma.rsetsockopt(rs, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    sigset_t old;
    sw_rdma_mask(&old);
    int error = sw_rdma.rbind(rs, &own.sa, meet_length_of(&own)) ? errno : 0;
    int queue = -1;
    if (!error && sw_rdma_listen(rs, sock->backlog, &queue))
        error = errno;
    sw_rdma_unmask(&old);
    if (error) {
        rsocket_end(rs);
        return reason_of(error);
    }
    atomic_store(&sock->queue, queue);
    atomic_store(&sock->rs, rs);
    return NULL;
}

int sw_meet_listen(struct sw_sock *sock, int fd, int backlog)
{
    pthread_mutex_lock(&sock->lock);
    int result = SW_REAL(listen)(fd, backlog);
    if (result == 0 && sw_sock_way(sock) == SW_WAY_NONE) {
        sock->backlog = backlog;
        const char *why = listen_rdma(sock, fd);
        sw_way_tell(sock, fd, SW_WAY_LISTEN, true, why ? why : "");
        sw_epoll_moved(sock);
    }
    pthread_mutex_unlock(&sock->lock);
    return result;
}

void sw_meet_use(struct sw_sock *sock, int fd)
{
    if (sock->used || sw_sock_way(sock) != SW_WAY_LISTEN)
        return;
    int saved_errno = errno;
    pthread_mutex_lock(&sock->lock);
    if (!sock->used && sock->relisten) {
        const char *why = listen_rdma(sock, fd);
        sw_way_tell(sock, fd, SW_WAY_LISTEN, true, why ? why : "");
    }
    sock->relisten = false;
    sock->used = true;
    pthread_mutex_unlock(&sock->lock);
    sw_epoll_moved(sock);
    errno = saved_errno;
}

int sw_meet_name(struct sw_sock *sock, bool of_peer, struct sockaddr *address, socklen_t *len)
{
    union sw_address found;
    socklen_t found_len = sizeof(found);
    int rs = sw_sock_rs(sock);
    memset(&found, 0, sizeof(found));
    if (rs < 0 || (of_peer ? sw_rdma.rgetpeername(rs, &found.sa, &found_len)
                           : sw_rdma.rgetsockname(rs, &found.sa, &found_len))) {
        errno = ENOTCONN;
        return -1;
    }
    if (sock->domain == AF_INET6 && found.sa.sa_family == AF_INET) {
        struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
                                   .sin6_port = found.in.sin_port,
                                   .sin6_addr = sw_peers_key_of(&found)};
        found.in6 = in6;
    }
    found_len = meet_length_of(&found);
    memcpy(address, &found, *len < found_len ? *len : found_len);
    *len = found_len;
    return 0;
}

/* A client that has come by RDMA gets a TCP socket to stand for it. */
static int adopt_connection(struct sw_sock *listener, int rs, struct sockaddr *address,
                            socklen_t *len, int flags)
{
    int fd = SW_REAL(socket)(listener->domain, SOCK_STREAM | flags, 0);
    struct sw_sock *sock = fd < 0 ? NULL : sw_sock_new(fd, listener->domain, flags & SOCK_NONBLOCK);
    if (!sock) {
        int error = fd < 0 ? errno : ENOMEM;
        if (fd >= 0)
            SW_REAL(close)(fd);
        rsocket_end(rs);
        errno = error;
        return -1;
    }
    take_rsocket(sock, rs);
    union sw_address peer;
    socklen_t peer_len = sizeof(peer);
    memset(&peer, 0, sizeof(peer));
    sw_rdma.rgetpeername(rs, &peer.sa, &peer_len);
    const char *why;
    enum sw_way way = sw_way_of_peer(&peer, &why);
    sw_way_tell(sock, fd, way, true, why);
    if (address && len)
        sw_meet_name(sock, true, address, len);
    sw_sock_put(sock);
    return fd;
}

static int accept_rdma(struct sw_sock *sock, struct sockaddr *address, socklen_t *len, int flags)
{
    int listener = sw_sock_rs(sock);
    errno = EAGAIN;
    if (listener < 0)
        return -1;
    int rs = sw_rdma_accept(listener);
    return rs < 0 ? -1 : adopt_connection(sock, rs, address, len, flags);
}

/* A blocking descriptor is asked first whether somebody is there. */
static int accept_tcp(struct sw_sock *sock, int fd, struct sockaddr *address, socklen_t *len,
                      int flags)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    if (!atomic_load(&sock->nonblock) && SW_REAL(poll)(&one, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    int got = SW_REAL(accept4)(fd, address, len, flags);
    if (got < 0)
        return got;
    struct sw_sock *made = sw_sock_new(got, sock->domain, flags & SOCK_NONBLOCK);
    if (made) {
        sw_way_tell(made, got, SW_WAY_TCP, true, "the client came by TCP");
        sw_sock_put(made);
    }
    return got;
}

/* The kernel waits. */
static int accept_kernel(struct sw_sock *sock, int fd, struct sockaddr *address, socklen_t *len,
                         int flags)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    uint64_t timeout_ns = sock->receive_timeout_ns;
    int ready = SW_REAL(poll)(&one, 1, timeout_ns ? (int)(timeout_ns / SW_NS_PER_MS) : -1);
    if (ready > 0)
        return accept_tcp(sock, fd, address, len, flags);
    if (!ready)
        errno = EAGAIN;
    return -1;
}

int sw_meet_accept(struct sw_sock *sock, int fd, struct sockaddr *address, socklen_t *len,
                   int flags)
{
    sw_meet_use(sock, fd);
    bool nonblock = atomic_load(&sock->nonblock);
    if (sw_sock_rs(sock) < 0)
        return nonblock ? accept_tcp(sock, fd, address, len, flags)
                        : accept_kernel(sock, fd, address, len, flags);
    uint64_t timeout_ns = sock->receive_timeout_ns;
    uint64_t limit_ns = timeout_ns ? sw_clock_ns() + timeout_ns : SW_FOREVER;
    for (;;) {
        bool rdma_first = sock->turn ^= 1;
        for (int i = 0; i < 2; i++) {
            int got = (i == 0) == rdma_first ? accept_rdma(sock, address, len, flags)
                                             : accept_tcp(sock, fd, address, len, flags);
            if (got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
                return got;
        }
        if (nonblock || sw_clock_ns() >= limit_ns)
            return -1;
        struct pollfd both[3] = {{.fd = sw_sock_wait_fd(sock), .events = POLLIN},
                                 {.fd = fd, .events = POLLIN}};
        if (sw_wait_sleep(both, 2, limit_ns)) {
            errno = EINTR;
            return -1;
        }
    }
}
