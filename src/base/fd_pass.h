/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages over Unix sockets that bring descriptors along (SCM_RIGHTS, unix(7)). What a peer sends
 * arrives in this process whether it was asked for or not, so the receiver closes what it has no
 * use for.
 */
#ifndef SW_BASE_FD_PASS_H
#define SW_BASE_FD_PASS_H

#include <stddef.h>
#include <sys/types.h>

#define SW_FD_PASS_MAX 8u /* descriptors of one message */

/* Sends one message with `count` descriptors, 0 to SW_FD_PASS_MAX. `flags` are those of sendmsg();
 * MSG_NOSIGNAL is added. 0 or a negative errno. */
int sw_fd_pass_send(int socket, const void *bytes, size_t len, const int fds[], size_t count,
                    int flags);

/* Receives one message. The first `fds_max` descriptors that came with it go to fds[], close on
 * exec, and further ones are closed; what did not come is -1. `flags` are those of recvmsg().
 * Returns the length, `len_max` + 1 if the message was longer, or a negative errno. *count says how
 * many came: more than `fds_max` if some were closed. */
ssize_t sw_fd_pass_receive(int socket, void *bytes, size_t len_max, int fds[], size_t fds_max,
                           size_t *count, int flags);

#endif
