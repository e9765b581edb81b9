/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_RESOLVE_H
#define SW_MOVERS_RESOLVE_H

#include <sys/socket.h>

/* An address and a port as users write them, names too. NULL, and `out` is the first that was
 * found; else why there is none, as "Name or service not known". `port` NULL: 0. `flags` are those
 * of getaddrinfo(); with AI_PASSIVE `address` may be NULL: all of this host. A number above 65535
 * is no port; getaddrinfo() takes what is left of it in 16 bits. */
const char *mover_resolve(const char *address, const char *port, int flags,
                          struct sockaddr_storage *out);
/* The same of somebody to connect to, who has a port. */
const char *mover_resolve_peer(const char *address, const char *port, struct sockaddr_storage *out);

#endif
