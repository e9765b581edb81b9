/* SPDX-License-Identifier: BSD-2-Clause */
/* How connections come about: connect, listen and accept, by RDMA first and else by TCP. All return
 * as the calls they stand for do, with errno. */
#ifndef SW_SOCKETS_MEET_H
#define SW_SOCKETS_MEET_H

#include "sockets/sock.h"

int sw_meet_connect(struct sw_sock *sock, int fd, const struct sockaddr *address, socklen_t len);
int sw_meet_listen(struct sw_sock *sock, int fd, int backlog);
int sw_meet_accept(struct sw_sock *sock, int fd, struct sockaddr *address, socklen_t *len,
                   int flags);

/* Before this process waits at a listener: if its rsocket was given up before fork(), or belongs to
 * the parent, it gets one. */
void sw_meet_use(struct sw_sock *sock, int fd);

/* The names of a connection by RDMA, in the family of the program's socket. */
int sw_meet_name(struct sw_sock *sock, bool of_peer, struct sockaddr *address, socklen_t *len);

#endif
