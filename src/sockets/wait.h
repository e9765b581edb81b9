/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting for rsockets and the kernel's descriptors together. It polls for a short time, since what
 * comes by RDMA comes without the kernel; then it arms the completion queues and sleeps in the
 * kernel (rpoll), so that an idle program takes no processor time.
 */
#ifndef SW_SOCKETS_WAIT_H
#define SW_SOCKETS_WAIT_H

#include <poll.h>
#include <stddef.h>

#include "sockets/sock.h"

#define SW_FOREVER UINT64_MAX /* as a limit */

/* How long to poll before sleeping (SIDEWIRE_SOCKETS_POLL_US). */
uint64_t sw_wait_poll_ns(void);

/* What a TCP socket would show of `wanted` (and errors) where the rsocket shows `shown`. */
short sw_wait_translate(struct sw_sock *sock, short shown, short wanted);

/* Waits until an rsocket shows one of the events, or its end. 0, or a negative errno: -EAGAIN at
 * the limit (CLOCK_MONOTONIC), -EINTR. */
int sw_wait_one(struct sw_sock *sock, short events, uint64_t limit_ns);

/* What a sleep has seen of a connection's channel; and a look at it without one. */
void sw_wait_note_channel(struct sw_sock *sock, short shown);
void sw_wait_look_channel(struct sw_sock *sock);

/* Sleeps until one of the rsockets or descriptors may be ready, or the limit: look again. The array
 * has room for one more. 0 or -EINTR. */
int sw_wait_sleep(struct pollfd *fds, size_t count, uint64_t limit_ns);

/* poll() for sets with at least one socket that RDMA has to do with. */
int sw_wait_poll(struct pollfd *fds, nfds_t count, uint64_t limit_ns);
/* Whether it is such a set. */
bool sw_wait_concerns(struct pollfd *fds, nfds_t count);

void sw_wait_forked(void);

uint64_t sw_wait_limit_ns(int64_t timeout_ns); /* < 0: forever */

#endif
