/* SPDX-License-Identifier: BSD-2-Clause */
/* The sockets by which ranks meet: "HOST:PORT", IPv4 and IPv6. */
#ifndef SW_MOVERS_RENDEZVOUS_SOCKET_H
#define SW_MOVERS_RENDEZVOUS_SOCKET_H

#include <netdb.h>
#include <stddef.h>

/* All addresses of "HOST:PORT"; freeaddrinfo() frees them. 0, or -EINVAL with `error`. */
int mover_meet_resolve(const char *at, struct addrinfo **addresses, char *error,
                       size_t error_bytes);
/* A listener at the first of them that this host has. The descriptor, or a negative errno. */
int mover_meet_listen(const struct addrinfo *addresses);
/* The beginning of a connection, without waiting. The descriptor, or a negative errno. */
int mover_meet_connect(const struct addrinfo *address);
/* "192.0.2.1:4450" of the other side. */
void mover_meet_name(int fd, char *name, size_t bytes);

#endif
