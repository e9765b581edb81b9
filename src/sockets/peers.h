/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What this process remembers of the peers it connects to: hosts that did not answer by RDMA, and
 * servers whose connections are brief.
 *
 * A connection by RDMA takes 1 to 2 ms to make and to end, most of it for memory that both sides
 * map; one by TCP a tenth of that. Each message gives back some 10 us. So a connection that carries
 * few messages is better off with TCP. Nobody knows beforehand which one will, but programs repeat
 * themselves: once some in succession to a server were brief, the next ones go by TCP until one was
 * not. All are judged when they are closed, whichever way they went.
 */
#ifndef SW_SOCKETS_PEERS_H
#define SW_SOCKETS_PEERS_H

#include "sockets/sock.h"

/* IPv4 as IPv6 sees it, so that one kind of key does. */
struct in6_addr sw_peers_key_of(const union sw_address *address);

/* A host that did not answer by RDMA, of late. */
bool sw_peers_is_silent(const union sw_address *peer);
void sw_peers_note_silent(const union sw_address *peer);

/* Whether connections to this address and port were brief, one after the other, until now. */
bool sw_peers_is_brief(const union sw_address *peer);
/* This socket's connection was asked for by RDMA, or would have been: it is judged at its end. */
void sw_peers_begin(struct sw_sock *sock, const union sw_address *peer);
/* Its last descriptor is about to be closed. */
void sw_peers_end(struct sw_sock *sock, int fd);

void sw_peers_forked(void);

#endif
