/* SPDX-License-Identifier: BSD-2-Clause */
#include "sockets/io.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "sockets/rdma.h"
#include "sockets/real.h"
#include "sockets/wait.h"

/* A program that only ever tries to receive looks for the end of the peer each so many times. */
enum { IDLE_LOOK = 64 };

static ssize_t io_fail_with(int error)
{
    errno = error;
    return -1;
}

static bool is_nonblocking(const struct sw_sock *sock, int flags)
{
    return (flags & MSG_DONTWAIT) || atomic_load_explicit(&sock->nonblock, memory_order_relaxed);
}

static uint64_t limit_of(uint64_t timeout_ns)
{
    return timeout_ns ? sw_clock_ns() + timeout_ns : SW_FOREVER;
}

/* The end of a connection: in order, or by a fault that is told once. */
static ssize_t end_of_stream(struct sw_sock *sock, int rs)
{
    struct pollfd one = {.fd = rs, .events = POLLIN};
    sw_rdma.rpoll(&one, 1, 0);
    if ((one.revents & POLLERR) && !atomic_exchange(&sock->told_error, true))
        return io_fail_with(ECONNRESET);
    return 0;
}

/* What is there now: fills the parts from `skip` bytes on. */
static ssize_t receive_now(int rs, const struct iovec *parts, size_t count, size_t skip, int flags)
{
    ssize_t total = 0;
    for (size_t i = 0; i < count; i++) {
        if (skip >= parts[i].iov_len) {
            skip -= parts[i].iov_len;
            continue;
        }
        size_t len = parts[i].iov_len - skip;
        ssize_t got =
            sw_rdma.rrecv(rs, (char *)parts[i].iov_base + skip, len, flags | MSG_DONTWAIT);
        skip = 0;
        if (got < 0)
            return total ? total : got;
        total += got;
        if ((size_t)got < len || (flags & MSG_PEEK))
            break;
    }
    return total;
}

static size_t io_length_of(const struct iovec *parts, size_t count)
{
    size_t len = 0;
    for (size_t i = 0; i < count; i++)
        len += parts[i].iov_len;
    return len;
}

ssize_t sw_io_receive(struct sw_sock *sock, const struct iovec *parts, size_t count, int flags)
{
    int rs = sw_sock_rs(sock);
    size_t len = io_length_of(parts, count), done = 0;
    uint64_t limit_ns = 0;
    if (rs < 0)
        return io_fail_with(ECONNRESET);
    if (atomic_load_explicit(&sock->shut_rd, memory_order_relaxed) || !len)
        return 0;
    for (;;) {
        ssize_t got = receive_now(rs, parts, count, done, flags & MSG_PEEK);
        if (got == 0)
            return done ? (ssize_t)done : end_of_stream(sock, rs);
        if (got > 0) {
            done += (size_t)got;
            sw_sock_count_message(sock);
            if (!(flags & MSG_PEEK))
                atomic_fetch_add_explicit(&sock->received, (uint64_t)got, memory_order_relaxed);
        } else if (errno == EAGAIN && atomic_load_explicit(&sock->ended, memory_order_relaxed)) {
            return (ssize_t)done;
        } else if (errno != EAGAIN && errno != EWOULDBLOCK) {
            return done ? (ssize_t)done : io_fail_with(errno == ENOTCONN ? ENOTCONN : ECONNRESET);
        }
        if (done < len && !(flags & MSG_PEEK))
            atomic_fetch_add_explicit(&sock->drained, 1, memory_order_relaxed);
        if (done == len || (done && !(flags & MSG_WAITALL)) || (done && (flags & MSG_PEEK)))
            return (ssize_t)done;
        if (is_nonblocking(sock, flags)) {
            if (!done && ++sock->idle % IDLE_LOOK == 0)
                sw_wait_look_channel(sock);
            return done ? (ssize_t)done : io_fail_with(EAGAIN);
        }
        if (!limit_ns)
            limit_ns = limit_of(sock->receive_timeout_ns);
        int failed = sw_wait_one(sock, POLLIN, limit_ns);
        if (failed)
            return done ? (ssize_t)done : io_fail_with(-failed);
    }
}

/* What there is room for now. Whole runs of parts go out as one message. */
static ssize_t io_send_now(int rs, const struct iovec *parts, size_t count, size_t skip, int flags)
{
    size_t i = 0;
    while (i < count && skip >= parts[i].iov_len)
        skip -= parts[i++].iov_len;
    if (i == count)
        return 0;
    if (skip || i + 1 == count)
        return sw_rdma.rsend(rs, (char *)parts[i].iov_base + skip, parts[i].iov_len - skip,
                             flags | MSG_DONTWAIT);
    struct msghdr message = {.msg_iov = (struct iovec *)(parts + i), .msg_iovlen = count - i};
    return sw_rdma.rsendmsg(rs, &message, flags | MSG_DONTWAIT);
}

static ssize_t broken_pipe(int flags)
{
    if (!(flags & MSG_NOSIGNAL))
        raise(SIGPIPE);
    return io_fail_with(EPIPE);
}

ssize_t sw_io_send(struct sw_sock *sock, const struct iovec *parts, size_t count, int flags)
{
    int rs = sw_sock_rs(sock);
    size_t len = io_length_of(parts, count), done = 0;
    uint64_t limit_ns = 0;
    if (rs < 0)
        return io_fail_with(ECONNRESET);
    if (atomic_load_explicit(&sock->shut_wr, memory_order_relaxed))
        return broken_pipe(flags);
    while (done < len) {
        ssize_t sent = io_send_now(rs, parts, count, done, 0);
        if (sent > 0) {
            done += (size_t)sent;
            sw_sock_count_message(sock);
            continue;
        }
        if (atomic_load_explicit(&sock->ended, memory_order_relaxed))
            return done ? (ssize_t)done : broken_pipe(flags);
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            return done ? (ssize_t)done : broken_pipe(flags);
        atomic_fetch_add_explicit(&sock->blocked, 1, memory_order_relaxed);
        if (is_nonblocking(sock, flags))
            return done ? (ssize_t)done : io_fail_with(EAGAIN);
        if (!limit_ns)
            limit_ns = limit_of(sock->send_timeout_ns);
        int failed = sw_wait_one(sock, POLLOUT, limit_ns);
        if (failed)
            return done ? (ssize_t)done : io_fail_with(-failed);
    }
    return (ssize_t)done;
}

ssize_t sw_io_send_file(struct sw_sock *sock, int file, off_t *offset, size_t len)
{
    enum { CHUNK = 1 << 16 };
    off_t at = offset ? *offset : lseek(file, 0, SEEK_CUR);
    if (at < 0)
        return -1;
    char *chunk = malloc(CHUNK);
    if (!chunk)
        return io_fail_with(ENOMEM);
    size_t done = 0;
    ssize_t result = 0;
    while (done < len) {
        ssize_t got = pread(file, chunk, sw_min_size(len - done, CHUNK), at);
        if (got <= 0) {
            result = got;
            break;
        }
        struct iovec part = {chunk, (size_t)got};
        ssize_t sent = sw_io_send(sock, &part, 1, 0);
        if (sent <= 0) {
            result = sent;
            break;
        }
        at += sent;
        done += (size_t)sent;
        if (sent < got)
            break;
    }
    int saved_errno = errno;
    free(chunk);
    if (offset)
        *offset = at;
    else
        lseek(file, at, SEEK_SET);
    errno = saved_errno;
    return done ? (ssize_t)done : result;
}

ssize_t sw_io_waiting(struct sw_sock *sock, size_t max)
{
    int rs = sw_sock_rs(sock);
    char *copy = rs < 0 ? NULL : malloc(max);
    if (!copy)
        return 0;
    ssize_t got = sw_rdma.rrecv(rs, copy, max, MSG_PEEK | MSG_DONTWAIT);
    free(copy);
    return got < 0 ? 0 : got;
}

int sw_io_shutdown(struct sw_sock *sock, int how)
{
    int rs = sw_sock_rs(sock);
    if (rs < 0)
        return (int)io_fail_with(ENOTCONN);
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
        return (int)io_fail_with(EINVAL);
    if (how != SHUT_WR)
        atomic_store(&sock->shut_rd, true);
    if (how != SHUT_RD)
        atomic_store(&sock->shut_wr, true);
    /* Data that the peer still sends is dropped without a word, as TCP does; so SHUT_RD is ours
     * alone.
     */
    if (how == SHUT_RD)
        return 0;
    sw_rdma.rshutdown(rs, atomic_load(&sock->shut_rd) ? SHUT_RDWR : SHUT_WR);
    return 0;
}
