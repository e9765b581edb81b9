/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu/common/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/common/answer.h"

enum { PATIENCE_S = 20 };

static _Noreturn void run_role(int socket, const char *role, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(ANSWER_FAILED);
    if (socket == PEER_SOCKET)
        fcntl(socket, F_SETFD, 0);
    else
        dup2(socket, PEER_SOCKET);
    execl("/proc/self/exe", program_invocation_name, role, NULL);
    _exit(ANSWER_FAILED);
}

static void limit_waits(int socket)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

void peer_start(struct peer *peer, const char *role)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        answer_skip("socketpair: %s", strerror(errno));
    const pid_t parent = getpid();
    peer->pid = fork();
    if (peer->pid < 0)
        answer_skip("fork: %s", strerror(errno));
    if (!peer->pid)
        run_role(pair[1], role, parent);
    close(pair[1]);
    peer->socket = pair[0];
    limit_waits(pair[0]);
}

void peer_send(int socket, const struct peer_note *note, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)note, sizeof(*note)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    }
    sendmsg(socket, &message, MSG_NOSIGNAL); /* a peer that is gone is found by who receives */
}

bool peer_receive(int socket, struct peer_note *note, int *fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {note, sizeof(*note)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    limit_waits(socket);
    if (fd)
        *fd = -1;
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*note))
        return false;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS && fd)
        memcpy(fd, CMSG_DATA(header), sizeof(*fd));
    return true;
}

void peer_expect(int socket, struct peer_note *note, int *fd)
{
    if (peer_receive(socket, note, fd))
        return;
    answer_begin("failed");
    answer_text("call", "the other process said nothing");
    answer_end();
    exit(ANSWER_FAILED);
}

int peer_end(struct peer *peer, int signal)
{
    int status = 0;
    if (signal)
        kill(peer->pid, signal);
    close(peer->socket);
    while (waitpid(peer->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}
