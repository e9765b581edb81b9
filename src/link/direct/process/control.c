/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/process/control.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/fds.h"

int sw_control_send(int socket, const struct sw_message *message, const int *fds, size_t count)
{
    return sw_fd_pass_send(socket, message, sizeof(*message), fds, count, MSG_DONTWAIT);
}

void sw_control_close_fds(int fds[SW_CONTROL_FDS])
{
    for (int i = 0; i < SW_CONTROL_FDS; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

int sw_control_receive(int socket, struct sw_message *message, int fds[SW_CONTROL_FDS])
{
    size_t count;
    ssize_t len = sw_fd_pass_receive(socket, message, sizeof(*message), fds, SW_CONTROL_FDS, &count,
                                     MSG_DONTWAIT);
    if (len < 0)
        return len == -EAGAIN || len == -EINTR ? 0 : -1;
    for (int i = 0; i < SW_CONTROL_FDS; i++)
        fds[i] = sw_fd_own(fds[i]);
    if (len != sizeof(*message) || message->version != SW_PUB_VERSION || count > SW_CONTROL_FDS) {
        sw_control_close_fds(fds);
        return -1;
    }
    return 1;
}
