/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket addresses of the three families that an ID may have: IPv4, IPv6, and AF_IB, whose
 * addresses are GIDs. */
#ifndef SW_RDMACM_ADDRESS_H
#define SW_RDMACM_ADDRESS_H

#include <assert.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifndef AF_IB
#define AF_IB 27
#endif

/* As in <infiniband/ib.h> of librdmacm; numbers in network order. */
struct sw_sockaddr_ib {
    uint16_t family;
    uint16_t pkey;
    uint32_t flowinfo;
    uint8_t gid[16];
    uint64_t sid, sid_mask; /* the service id, and which bits of it were given */
    uint64_t scope_id;
};
static_assert(sizeof(struct sw_sockaddr_ib) == 48, "sockaddr_ib is ABI");

/* All zero: no address. */
union sw_address {
    sa_family_t family;
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sw_sockaddr_ib ib;
    struct sockaddr_storage room;
};

/* Bytes of an address of its family; 0: none that is known here. */
size_t sw_address_size(const union sw_address *address);

/* 0.0.0.0, :: and the like. */
bool sw_address_is_any(const union sw_address *address);
/* 127.0.0.0/8, ::1. */
bool sw_address_is_loopback(const union sw_address *address);
bool sw_address_is_link_local(const union sw_address *address); /* fe80::/10 */
/* Makes it the loopback address of its family. */
void sw_address_set_loopback(union sw_address *address);

/* Ports in host byte order. For AF_IB: the part of the service id that was given. */
uint16_t sw_address_port(const union sw_address *address);
void sw_address_set_port(union sw_address *address, uint16_t port);

/* The address without port; IPv4 is mapped into IPv6. */
void sw_address_to_gid(const union sw_address *address, uint8_t gid[16]);

/* Whether both are the same host (link-local ones on the same interface), whatever the ports. */
bool sw_address_is_same_host(const union sw_address *one, const union sw_address *other);

/* What a service id of IBTA Vol1 annex A11 says: which port space and port. */
uint64_t sw_address_service_id(const union sw_address *address, uint32_t port_space);

#endif
