/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks of the calls that move bytes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sockets/io.h"
#include "sockets/rdma.h"
#include "sockets/real.h"

static ssize_t receive_into(struct sw_sock *sock, void *out, size_t len, int flags)
{
    struct iovec part = {out, len};
    ssize_t done = sw_io_receive(sock, &part, 1, flags);
    sw_sock_put(sock);
    return done;
}

static ssize_t send_bytes(struct sw_sock *sock, const void *bytes, size_t len, int flags)
{
    struct iovec part = {(void *)bytes, len};
    ssize_t done = sw_io_send(sock, &part, 1, flags);
    sw_sock_put(sock);
    return done;
}

SW_HOOK ssize_t read(int fd, void *out, size_t len)
{
    struct sw_sock *sock = sw_sock_get_rdma(fd);
    return sock ? receive_into(sock, out, len, 0) : SW_REAL(read)(fd, out, len);
}

SW_HOOK ssize_t __read_chk(int fd, void *out, size_t len, size_t out_len)
{
    struct sw_sock *sock = len <= out_len ? sw_sock_get_rdma(fd) : NULL;
    return sock ? receive_into(sock, out, len, 0) : SW_REAL(__read_chk)(fd, out, len, out_len);
}

SW_HOOK ssize_t recv(int fd, void *out, size_t len, int flags)
{
    struct sw_sock *sock = sw_sock_get_rdma(fd);
    return sock ? receive_into(sock, out, len, flags) : SW_REAL(recv)(fd, out, len, flags);
}

SW_HOOK ssize_t __recv_chk(int fd, void *out, size_t len, size_t out_len, int flags)
{
    struct sw_sock *sock = len <= out_len ? sw_sock_get_rdma(fd) : NULL;
    return sock ? receive_into(sock, out, len, flags)
                : SW_REAL(__recv_chk)(fd, out, len, out_len, flags);
}

/* A stream tells no address, and the kernel leaves the length alone. */
SW_HOOK ssize_t recvfrom(int fd, void *out, size_t len, int flags, struct sockaddr *address,
                         socklen_t *address_len)
{
    struct sw_sock *sock = sw_sock_get_rdma(fd);
    return sock ? receive_into(sock, out, len, flags)
                : SW_REAL(recvfrom)(fd, out, len, flags, address, address_len);
}

SW_HOOK ssize_t __recvfrom_chk(int fd, void *out, size_t len, size_t out_len, int flags,
                               struct sockaddr *address, socklen_t *address_len)
{
    struct sw_sock *sock = len <= out_len ? sw_sock_get_rdma(fd) : NULL;
    return sock ? receive_into(sock, out, len, flags)
                : SW_REAL(__recvfrom_chk)(fd, out, len, out_len, flags, address, address_len);
}

SW_HOOK ssize_t readv(int fd, const struct iovec *parts, int count)
{
    struct sw_sock *sock = count >= 0 ? sw_sock_get_rdma(fd) : NULL;
    if (!sock)
        return SW_REAL(readv)(fd, parts, count);
    ssize_t done = sw_io_receive(sock, parts, (size_t)count, 0);
    sw_sock_put(sock);
    return done;
}

SW_HOOK ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    struct sw_sock *sock = sw_sock_get_rdma(fd);
    if (!sock)
        return SW_REAL(recvmsg)(fd, message, flags);
    ssize_t done = sw_io_receive(sock, message->msg_iov, message->msg_iovlen, flags);
    sw_sock_put(sock);
    message->msg_namelen = 0;
    message->msg_controllen = 0;
    message->msg_flags = 0;
    return done;
}

SW_HOOK int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags,
                     struct timespec *timeout)
{
    struct sw_sock *sock = sw_sock_get_rdma(fd);
    if (!sock)
        return SW_REAL(recvmmsg)(fd, messages, count, flags, timeout);
    unsigned i = 0;
    ssize_t done = 0;
    for (; i < count; i++) {
        int more = i ? MSG_DONTWAIT : 0;
        done = sw_io_receive(sock, messages[i].msg_hdr.msg_iov, messages[i].msg_hdr.msg_iovlen,
                             (flags & ~MSG_WAITFORONE) | more);
        if (done < 0)
            break;
        messages[i].msg_len = (unsigned)done;
        messages[i].msg_hdr.msg_flags = 0;
        if (done == 0) {
            i++;
            break;
        }
    }
    sw_sock_put(sock);
    return i ? (int)i : (int)done;
}

SW_HOOK ssize_t write(int fd, const void *bytes, size_t len)
{
    struct sw_sock *sock = sw_sock_get_rdma(fd);
    if (sock)
        return send_bytes(sock, bytes, len, 0);
    return __builtin_expect(sw_rdma_is_meeting, 0) ? sw_rdma_write(fd, bytes, len)
                                                   : SW_REAL(write)(fd, bytes, len);
}

SW_HOOK ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    struct sw_sock *sock = sw_sock_get_rdma(fd);
    return sock ? send_bytes(sock, bytes, len, flags) : SW_REAL(send)(fd, bytes, len, flags);
}

SW_HOOK ssize_t sendto(int fd, const void *bytes, size_t len, int flags,
                       const struct sockaddr *address, socklen_t address_len)
{
    struct sw_sock *sock = sw_sock_get_rdma(fd);
    return sock ? send_bytes(sock, bytes, len, flags)
                : SW_REAL(sendto)(fd, bytes, len, flags, address, address_len);
}

SW_HOOK ssize_t writev(int fd, const struct iovec *parts, int count)
{
    struct sw_sock *sock = count >= 0 ? sw_sock_get_rdma(fd) : NULL;
    if (!sock)
        return SW_REAL(writev)(fd, parts, count);
    ssize_t done = sw_io_send(sock, parts, (size_t)count, 0);
    sw_sock_put(sock);
    return done;
}

SW_HOOK ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct sw_sock *sock = sw_sock_get_rdma(fd);
    if (!sock)
        return SW_REAL(sendmsg)(fd, message, flags);
    ssize_t done = sw_io_send(sock, message->msg_iov, message->msg_iovlen, flags);
    sw_sock_put(sock);
    return done;
}

SW_HOOK int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
    struct sw_sock *sock = sw_sock_get_rdma(fd);
    if (!sock)
        return SW_REAL(sendmmsg)(fd, messages, count, flags);
    unsigned i = 0;
    ssize_t done = 0;
    for (; i < count && done >= 0; i++) {
        done = sw_io_send(sock, messages[i].msg_hdr.msg_iov, messages[i].msg_hdr.msg_iovlen, flags);
        if (done < 0)
            break;
        messages[i].msg_len = (unsigned)done;
    }
    sw_sock_put(sock);
    return i ? (int)i : (int)done;
}

SW_HOOK ssize_t sendfile(int out, int in, off_t *offset, size_t len)
{
    struct sw_sock *sock = sw_sock_get_rdma(out);
    if (!sock)
        return SW_REAL(sendfile)(out, in, offset, len);
    ssize_t done = sw_io_send_file(sock, in, offset, len);
    sw_sock_put(sock);
    return done;
}

SW_HOOK ssize_t sendfile64(int out, int in, off64_t *offset, size_t len)
{
    struct sw_sock *sock = sw_sock_get_rdma(out);
    if (!sock)
        return SW_REAL(sendfile64)(out, in, offset, len);
    ssize_t done = sw_io_send_file(sock, in, (off_t *)offset, len);
    sw_sock_put(sock);
    return done;
}

/* As for descriptors that cannot be spliced: programs have another way then. */
SW_HOOK ssize_t splice(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t len,
                       unsigned flags)
{
    struct sw_sock *sock = sw_sock_get_rdma(in);
    if (!sock)
        sock = sw_sock_get_rdma(out);
    if (!sock)
        return SW_REAL(splice)(in, in_offset, out, out_offset, len, flags);
    sw_sock_put(sock);
    errno = EINVAL;
    return -1;
}
