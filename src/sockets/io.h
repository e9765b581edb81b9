/* SPDX-License-Identifier: BSD-2-Clause */
/* Bytes of connections by RDMA. As the calls they stand for: -1 with errno. */
#ifndef SW_SOCKETS_IO_H
#define SW_SOCKETS_IO_H

#include <sys/types.h>
#include <sys/uio.h>

#include "sockets/sock.h"

ssize_t sw_io_receive(struct sw_sock *sock, const struct iovec *parts, size_t count, int flags);
ssize_t sw_io_send(struct sw_sock *sock, const struct iovec *parts, size_t count, int flags);
/* sendfile(): `offset` as there. */
ssize_t sw_io_send_file(struct sw_sock *sock, int file, off_t *offset, size_t len);
/* Bytes that can be received at once, up to `max`: FIONREAD. */
ssize_t sw_io_waiting(struct sw_sock *sock, size_t max);
int sw_io_shutdown(struct sw_sock *sock, int how);

#endif
