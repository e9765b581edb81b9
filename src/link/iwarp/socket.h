/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TCP sockets. By system calls, since a library that makes RDMA of sockets may stand before libc's.
 * A descriptor, a count of bytes, or a negative errno.
 */
#ifndef SW_LINK_IWARP_SOCKET_H
#define SW_LINK_IWARP_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* From an address, and its port if that is free. */
int sw_iwarp_socket_connect(const struct sockaddr *own, socklen_t own_len,
                            const struct sockaddr *peer, socklen_t peer_len);
/* `is_v6only` means nothing to IPv4. */
int sw_iwarp_socket_listen(const struct sockaddr *own, socklen_t len, int backlog, bool is_v6only);
/* Whether TCP would let somebody listen at the port, at any address. */
bool sw_iwarp_socket_is_free(uint16_t port);
int sw_iwarp_socket_accept(int listener, struct sockaddr_storage *own,
                           struct sockaddr_storage *peer);
/* Bytes that TCP puts into one segment. */
uint32_t sw_iwarp_socket_segment(int fd);

/* Whether its congestion control paces, and then how many bytes per second, in such segments. */
bool sw_iwarp_socket_paces(int fd);
bool sw_iwarp_socket_pace(int fd, uint64_t *rate, uint32_t *segment);

/* None of these wait. */
ssize_t sw_iwarp_socket_send(int fd, const void *bytes, size_t len);
ssize_t sw_iwarp_socket_send_pieces(int fd, struct iovec *pieces, uint32_t count);
ssize_t sw_iwarp_socket_receive(int fd, void *bytes, size_t room);
ssize_t sw_iwarp_socket_receive_pieces(int fd, struct iovec *pieces, uint32_t count);
/* Nothing more will be sent. */
void sw_iwarp_socket_end(int fd);
/* Closes it with a reset: neither side keeps anything of it. */
void sw_iwarp_socket_abort(int fd);

#endif
