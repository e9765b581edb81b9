/* SPDX-License-Identifier: BSD-2-Clause */
/* Which way a connection went, and why: said in the log and published for `sidewire status`. */
#ifndef SW_SOCKETS_WAY_H
#define SW_SOCKETS_WAY_H

#include "sockets/sock.h"

enum { SW_ADDRESS_TEXT = 64 };

/* Decides: the socket is this way from now on. `reason` is one clause. Keeps errno. */
void sw_way_tell(struct sw_sock *sock, int fd, enum sw_way way, bool incoming, const char *reason);
/* The connection, or the attempt, is over. */
void sw_way_forget(struct sw_sock *sock);
void sw_way_forked(void);

/* Whether an address is one of this host's, in this network namespace. */
bool sw_way_is_here(const union sw_address *peer);
/* By which of the two ways of RDMA a peer is reached; `reason` says why. */
enum sw_way sw_way_of_peer(const union sw_address *peer, const char **reason);

#endif
