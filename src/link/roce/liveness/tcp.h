/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TCP sockets of the library's own, none of which blocks. By bare system calls: a program's own
 * sockets may be rsockets (src/sockets), and libc's calls are cancellation points. Addresses are
 * GIDs, as in path.h. Descriptors or 0; or a negative errno.
 */
#ifndef SW_LINK_ROCE_LIVENESS_TCP_H
#define SW_LINK_ROCE_LIVENESS_TCP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A host that is not heard of for so long ends a connection. */
#define SW_TCP_SILENCE_MS 5000

/* At any address of the family, at a port that the kernel chooses. */
int sw_tcp_listen(bool is_ipv4, uint16_t *port);
/* Begins to connect; the socket becomes writable when that has ended. */
int sw_tcp_connect(const struct in6_addr *source, const struct in6_addr *dest, uint16_t port,
                   uint32_t ifindex);
int sw_tcp_accept(int listener, struct in6_addr *own, struct in6_addr *peer);
/* What came of connecting. */
int sw_tcp_error(int fd);
/* A number that no other socket has had since boot; 0: it is no socket (any more). A program that
 * closes descriptors which are not its own may have another file at their numbers since. */
uint64_t sw_tcp_cookie(int fd);
/* Whether the other host's kernel has acknowledged all that was sent. */
bool sw_tcp_is_acknowledged(int fd);
/* The shortest round trip between the two kernels; 0: not known. */
uint64_t sw_tcp_rtt_ns(int fd);
/* Bytes; 0 received: the end. */
int sw_tcp_send(int fd, const void *bytes, size_t len);
int sw_tcp_receive(int fd, void *bytes, size_t room);

#endif
