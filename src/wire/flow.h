/* SPDX-License-Identifier: BSD-2-Clause */
/* What of the IP and UDP headers a RoCEv2 packet depends on: the addresses and ports, and the
 * fields of IPv4 that the ICRC covers. */
#ifndef SW_WIRE_FLOW_H
#define SW_WIRE_FLOW_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SW_IPV4_BYTES = 20, /* without options, which RoCEv2 does not have */
    SW_IPV6_BYTES = 40,
    SW_UDP_BYTES = 8,
    SW_IPPROTO_UDP = 17,
};

struct sw_flow {
    bool is_ipv6;
    bool dont_fragment; /* IPv4 */
    uint8_t tos;        /* DSCP and ECN; IPv6: traffic class. Not covered by the ICRC */
    uint8_t ttl;        /* IPv6: hop limit. Not covered by the ICRC */
    uint16_t ip_id;     /* IPv4 */
    uint16_t src_port;  /* host byte order, as the next */
    uint16_t dst_port;
    uint8_t src[16]; /* IPv4: the first four */
    uint8_t dst[16];
};

#endif
