/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names that processes of one user know each other by: abstract sockets, so nothing is left when a
 * process dies, and the kernel lists them. Any user can bind any name, so a name counts only if the
 * socket that has it is of our user, as the kernel says (sock_diag(7), UDIAG_SHOW_UID). Where
 * somebody else has a name already, ours gets a suffix that nobody can guess, and is found by the
 * list. Where the kernel has no such list, /proc/net/unix serves and every name counts.
 */
#ifndef SW_LINK_NAMES_NAMES_H
#define SW_LINK_NAMES_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SW_NAME_BYTES 100u /* with the zero at the end, without a suffix */

/* The abstract address of a name, without a suffix; returns its length. */
socklen_t sw_name_address(const char *name, struct sockaddr_un *out);
/* A socket of that type (SOCK_CLOEXEC and SOCK_NONBLOCK are added) with the name. A descriptor;
 * -EADDRINUSE: a process of our user has it; or another negative errno. */
int sw_name_bind(int type, const char *name);
/* A connected SEQPACKET socket, non-blocking, whose other end is of our user. -ECONNREFUSED: no
 * process of ours has the name; -EAGAIN: it does not accept as fast as others connect. */
int sw_name_connect(const char *name);
/* The address of the socket of our user that has the name. False: there is none. */
bool sw_name_find(const char *name, struct sockaddr_un *address, socklen_t *len);
/* All names of our user that begin with `prefix`, each without its suffix, until the visitor
 * returns false; connected sockets are left out. False: they cannot be listed. */
bool sw_names_visit(const char *prefix, bool (*visitor)(void *context, const char *name),
                    void *context);
/* Tells which other user has the name; false: nobody, or that cannot be told. */
bool sw_name_stranger(const char *name, uint32_t *uid);

#endif
