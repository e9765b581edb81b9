/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A kernel that tells of the end of a peer before what that has said last. The library calls this
 * recvmmsg(). Linux does so where a peer sends and closes between two looks (base/fd_pass.h).
 */
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int
recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *limit)
{
    const long come = syscall(SYS_recvmmsg, fd, messages + 1, count - 1, flags, limit);
    if (come < 0)
        return -1;
    messages[0].msg_len = 0;
    return (int)come + 1;
}
