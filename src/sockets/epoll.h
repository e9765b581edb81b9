/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sets of epoll that have sockets in them. Descriptors that the kernel can see are in the kernel's
 * set of the same descriptor, with the program's data; connections by RDMA, and the RDMA side of
 * listeners, are items here. A set without such items is the kernel's alone.
 */
#ifndef SW_SOCKETS_EPOLL_H
#define SW_SOCKETS_EPOLL_H

#include <sys/epoll.h>

#include "sockets/sock.h"

struct sw_epoll;

/* Makes the descriptor known. */
void sw_epoll_new(int epfd);
void sw_epoll_end(struct sw_epoll *epoll);

/* epoll_ctl() for a descriptor that is a socket we know. */
int sw_epoll_control(struct sw_epoll *epoll, int op, struct sw_sock *sock, int fd,
                     struct epoll_event *event);
int sw_epoll_wait(struct sw_epoll *epoll, int epfd, struct epoll_event *out, int max,
                  uint64_t limit_ns);

/* Around a wait of the kernel's with a mask or nanoseconds of the program's, for a set nothing of
 * which is RDMA's: false if that has changed. Its events go through sw_epoll_left(), which may
 * leave less. */
bool sw_epoll_enter(struct sw_epoll *epoll);
int sw_epoll_left(struct sw_epoll *epoll, struct epoll_event *out, int count);

/* Whether anything of it is RDMA's; without a reference. */
bool sw_epoll_has_rdma(const struct sw_epoll *epoll);
/* Whether an item of RDMA is ready. */
bool sw_epoll_is_ready(struct sw_epoll *epoll);

/* The socket went another way than before, or is gone. */
void sw_epoll_moved(struct sw_sock *sock);
void sw_epoll_forget(struct sw_sock *sock);
void sw_epoll_forked(void);

#endif
