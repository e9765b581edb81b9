/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_ORIGIN_H
#define SW_MOVERS_ORIGIN_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* A host has as many addresses in its IPv6 network as it likes. But all hosts of a link share the
 * network of its local addresses, and all of IPv4 that of the mapped ones. */
static inline bool mover_origin_is_network(const struct in6_addr *address)
{
    return !IN6_IS_ADDR_LINKLOCAL(address) && !IN6_IS_ADDR_V4MAPPED(address) &&
           !IN6_IS_ADDR_LOOPBACK(address);
}

/* What all addresses of one host have in common, by which its share of a server is counted: of IPv6
 * the /64. */
static inline struct in6_addr mover_origin_of(const struct in6_addr *address)
{
    struct in6_addr origin = *address;
    if (mover_origin_is_network(address))
        memset(&origin.s6_addr[8], 0, 8);
    return origin;
}

/* The address of a peer; of IPv4 the mapped one. */
static inline struct in6_addr mover_address_of(const struct sockaddr *peer)
{
    struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (peer->sa_family == AF_INET6)
        return ((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr;
    memcpy(&address.s6_addr[12], &((const struct sockaddr_in *)(const void *)peer)->sin_addr, 4);
    return address;
}

/* The same for people. */
static inline void mover_address_name(const struct sockaddr *peer, char text[INET6_ADDRSTRLEN])
{
    const struct in6_addr address = mover_address_of(peer);
    const bool is_ipv4 = peer->sa_family == AF_INET;
    if (!inet_ntop(peer->sa_family, &address.s6_addr[is_ipv4 ? 12 : 0], text, INET6_ADDRSTRLEN))
        snprintf(text, INET6_ADDRSTRLEN, "?");
}

static inline struct in6_addr mover_origin_of_peer(const struct sockaddr *peer)
{
    const struct in6_addr address = mover_address_of(peer);
    return mover_origin_of(&address);
}

#endif
