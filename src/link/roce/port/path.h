/* SPDX-License-Identifier: BSD-2-Clause */
/* The way of a flow's packets: everything about their IP and UDP headers that does not change from
 * one to the next. Addresses are GIDs; an IPv4 address is one that is mapped into IPv6. */
#ifndef SW_LINK_ROCE_PORT_PATH_H
#define SW_LINK_ROCE_PORT_PATH_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/icrc.h"

struct sw_roce_path {
    struct in6_addr source, dest;
    uint32_t ifindex;   /* of a link-local or multicast address; else 0 */
    uint16_t dest_port; /* host order */
    uint8_t traffic_class;
    uint8_t hop_limit; /* 0: the system's */
    uint8_t sender;    /* which of the port's sources of packets, so which UDP source port */
    bool is_ipv4;
    bool is_carried;       /* by TCP, not by UDP: struct sw_port_carrier */
    uint32_t datagram_max; /* bytes of UDP that the interface takes in one packet; 0: not known */
    struct sw_icrc_flow icrc;
    uint64_t heard_ns; /* something that was sent then is known to have arrived; 0: nothing is */
};

/* Sets the addresses: GIDs. -EINVAL: one is IPv4, the other IPv6, or there is none. */
int sw_roce_path_set(struct sw_roce_path *path, const uint8_t source[16], const uint8_t dest[16],
                     uint32_t ifindex);

/* Whether packets of both leave from one socket with the same headers before the BTH. */
bool sw_roce_path_is_same(const struct sw_roce_path *one, const struct sw_roce_path *other);

/* A flow's headers before the BTH, for the ICRC. */
void sw_roce_icrc(const struct in6_addr *source, const struct in6_addr *dest, uint16_t source_port,
                  uint16_t dest_port, struct sw_icrc_flow *out);

bool sw_roce_is_ipv4(const struct in6_addr *address);
bool sw_roce_is_multicast(const struct in6_addr *address);

/* The address as a socket's; returns its length. */
unsigned int sw_roce_sockaddr(const struct in6_addr *address, uint16_t port, uint32_t ifindex,
                              struct sockaddr_in6 *out);
/* And back. */
void sw_roce_address(const struct sockaddr_in6 *from, struct in6_addr *address, uint16_t *port);

/* "10.0.0.1", "fe80::1"; for messages. */
#define SW_ROCE_ADDRESS_TEXT 48
const char *sw_roce_address_text(const struct in6_addr *address, char text[SW_ROCE_ADDRESS_TEXT]);

struct sw_netdev;
/* The device with this address; NULL: there is none (any more). */
struct sw_netdev *sw_roce_device_at(const struct in6_addr *own);

#endif
