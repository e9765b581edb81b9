/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The TCP sockets by which queue pairs of RoCE devices reach each other. Addresses are GIDs, IPv4
 * mapped into IPv6. A descriptor or a negative errno.
 */
#ifndef SW_LINK_PAIRED_SOCKET_H
#define SW_LINK_PAIRED_SOCKET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

/* Reads SIDEWIRE_TCP_PORT, SIDEWIRE_TCP_CC and SIDEWIRE_TCP_MPTCP; says what is wrong with them. */
void sw_paired_read_settings(void);
uint16_t sw_paired_port(void);

/* At any address, beside other processes of this user. */
int sw_paired_listen(void);
/* Whether a program that does not share the port with this user listens there. */
bool sw_paired_is_kept_out(void);
int sw_paired_accept(int listener);
/* Does not wait. `scope`: the interface of a link-local address. */
int sw_paired_connect(const struct in6_addr *own, const struct in6_addr *peer, uint32_t scope);
/* What the kernel says that the ends of a TCP connection are. False: it is none. */
bool sw_paired_ends(int fd, struct in6_addr *own, struct in6_addr *peer);
/* The interface of a TCP connection between link-local addresses; else 0. */
uint32_t sw_paired_scope(int fd);
/* The kernel gives a peer up that does not acknowledge for so long; 0: never. */
void sw_paired_set_patience(int fd, uint64_t limit_ns);
/* How long an answer may take where connecting has taken from `called_ns` on: a round trip, of a
 * peer that is as busy as this process. */
uint64_t sw_paired_answer_ns(int fd, uint64_t called_ns, uint64_t now_ns);
/* The errno with which connecting has failed, or 0. */
int sw_paired_error(int fd);

#endif
