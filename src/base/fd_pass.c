/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/fd_pass.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int sw_fd_pass_send(int socket, const void *bytes, size_t len, const int fds[], size_t count,
                    int flags)
{
    return sw_fd_pass_send_to(socket, NULL, 0, bytes, len, fds, count, flags);
}

int sw_fd_pass_send_to(int socket, const struct sockaddr *to, socklen_t to_len, const void *bytes,
                       size_t len, const int fds[], size_t count, int flags)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(SW_FD_PASS_MAX * sizeof(int))] = {0};
    struct iovec iov = {(void *)bytes, len};
    struct msghdr msg = {
        .msg_name = (void *)to, .msg_namelen = to_len, .msg_iov = &iov, .msg_iovlen = 1};
    assert(count <= SW_FD_PASS_MAX);
    if (count) {
        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(head), fds, count * sizeof(int));
    }
    ssize_t done = sendmsg(socket, &msg, flags | MSG_NOSIGNAL);
    return done == (ssize_t)len ? 0 : done < 0 ? -errno : -EMSGSIZE;
}

ssize_t sw_fd_pass_receive(int socket, void *bytes, size_t len_max, int fds[], size_t fds_max,
                           size_t *count, int flags)
{
    struct ucred from;
    return sw_fd_pass_receive_from(socket, bytes, len_max, fds, fds_max, count, &from, flags);
}

/* What came with it: the first `fds_max` descriptors; further ones are closed. */
static void keep_fds(const struct cmsghdr *at, int fds[], size_t fds_max, size_t *count)
{
    const size_t came = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < came; i++, ++*count) {
        int fd;
        memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof(fd));
        if (*count < fds_max)
            fds[*count] = fd;
        else
            close(fd);
    }
}

ssize_t sw_fd_pass_receive_from(int socket, void *bytes, size_t len_max, int fds[], size_t fds_max,
                                size_t *count, struct ucred *from, int flags)
{
    _Alignas(struct cmsghdr) char
        control[CMSG_SPACE(SW_FD_PASS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    struct iovec iov = {bytes, len_max};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof(control)};
    *count = 0;
    *from = (struct ucred){.uid = (uid_t)-1, .gid = (gid_t)-1};
    for (size_t i = 0; i < fds_max; i++)
        fds[i] = -1;
    const struct msghdr asked = msg;
    ssize_t len = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC);
    if (len == 0 && !msg.msg_controllen) { /* perhaps sent and closed after the look for messages */
        msg = asked;
        len = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC);
    }
    if (len < 0)
        return -errno;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&msg); at; at = CMSG_NXTHDR(&msg, at)) {
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS)
            keep_fds(at, fds, fds_max, count);
        else if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_CREDENTIALS)
            memcpy(from, CMSG_DATA(at), sizeof(*from));
    }
    if (msg.msg_flags & MSG_CTRUNC && *count <= fds_max) /* the kernel has closed some */
        *count = fds_max + 1;
    return msg.msg_flags & MSG_TRUNC ? (ssize_t)len_max + 1 : len;
}
