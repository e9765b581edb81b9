/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages over Unix sockets that bring descriptors along (SCM_RIGHTS, unix(7)). Descriptors that a
 * peer sends arrive in this process whether they were asked for or not, so the receiver closes
 * those that it has no use for.
 */
#ifndef SW_BASE_FD_PASS_H
#define SW_BASE_FD_PASS_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#define SW_FD_PASS_MAX 8u /* descriptors of one message */

/* Sends one message with `count` descriptors, 0 to SW_FD_PASS_MAX. `flags` are those of sendmsg();
 * MSG_NOSIGNAL is added. 0 or a negative errno. */
int sw_fd_pass_send(int socket, const void *bytes, size_t len, const int fds[], size_t count,
                    int flags);
/* The same from a socket that is not connected. */
int sw_fd_pass_send_to(int socket, const struct sockaddr *to, socklen_t to_len, const void *bytes,
                       size_t len, const int fds[], size_t count, int flags);

/* Receives one message. The first `fds_max` descriptors that came with it go to fds[], close on
 * exec, and further ones are closed; what did not come is -1. `flags` are those of recvmsg().
 * Returns the length, `len_max` + 1 if the message was longer, or a negative errno. *count says how
 * many came: more than `fds_max` if some were closed.
 *
 * 0 is the end. Linux looks for messages first and for the end of a SEQPACKET peer then. A peer
 * that sends and closes between the two seems to have ended without its last words, so after an end
 * the socket is read again. */
ssize_t sw_fd_pass_receive(int socket, void *bytes, size_t len_max, int fds[], size_t fds_max,
                           size_t *count, int flags);
/* The same of a socket that has SO_PASSCRED. *from: the sender, as the kernel says; its uid is
 * (uid_t)-1, nobody's, where that did not come. */
struct ucred;
ssize_t sw_fd_pass_receive_from(int socket, void *bytes, size_t len_max, int fds[], size_t fds_max,
                                size_t *count, struct ucred *from, int flags);

#endif
