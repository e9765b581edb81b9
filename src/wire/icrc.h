/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ICRC of RoCEv2: CRC-32 over 8 bytes of ones (where InfiniBand has an LRH) and the packet from
 * the IP header to the last pad byte, with ones in place of what routers change: IPv4 TOS, TTL and
 * header checksum (IPv6 traffic class, flow label, hop limit), UDP checksum, byte 4 of the BTH.
 * Stored with its least significant byte first. IBTA Vol1 7.8.1, A17.3.3.
 *
 * It covers the identification of the IPv4 header, which the kernel writes. A sender on an
 * unconnected UDP socket with IP_PMTUDISC_DO knows it: 0, and with UDP_SEGMENT 0, 1, 2, ... A
 * receiver cannot see it. But a CRC is linear: a wrong guess changes it by what the difference of
 * the headers alone makes of it, so the difference of two CRCs tells which identification would
 * explain it, if one does.
 */
#ifndef SW_WIRE_ICRC_H
#define SW_WIRE_ICRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/flow.h"

enum { SW_ICRC_PREFIX_MAX = 8 + SW_IPV6_BYTES + SW_UDP_BYTES };

/* Whether CRCs are computed by tables instead of carry-less multiplication: the results are the
 * same, and an emulated machine has them sooner. For the whole process, before it computes any. */
void sw_icrc_use_tables(bool tables);

/* All that is covered before the BTH, ready but for the lengths and the identification. Kept per
 * flow. */
struct sw_icrc_flow {
    uint8_t bytes[SW_ICRC_PREFIX_MAX];
    uint8_t len;
    bool is_ipv6;
    bool dont_fragment; /* of what is sent */
};
void sw_icrc_flow_init(struct sw_icrc_flow *flow, const struct sw_flow *from);

/* What packets of one flow that follow each other have in common: the CRC up to the ninth byte of
 * the BTH, for identification 0. Where they differ in that it is computed again. All zeros to begin
 * with; for one flow. */
struct sw_icrc_prefix {
    size_t datagram_len;
    uint32_t crc;
    uint8_t bth[8];
    bool dont_fragment;
};

/* What the ICRC covers of the sender's IPv4 header and a UDP socket does not show. */
struct sw_ip_id {
    uint16_t id;
    bool dont_fragment;
};

/* Writes the ICRC at the end of a datagram, which is there from the BTH to the pad; `len` counts
 * the ICRC. */
void sw_icrc_seal(const struct sw_icrc_flow *flow, struct sw_icrc_prefix *prefix, uint16_t ip_id,
                  uint8_t *datagram, size_t len);

/* A packet in pieces: begin() with its headers (BTH and extended, at most SW_HEADERS_MAX), add()
 * for each piece of payload, finish(). */
uint32_t sw_icrc_begin(const struct sw_icrc_flow *flow, uint16_t ip_id, const uint8_t *headers,
                       size_t header_len, size_t datagram_len);
uint32_t sw_icrc_add(uint32_t crc, const void *bytes, size_t len);
/* Writes what follows the payload, the pad and the ICRC. Returns its length, at most
 * SW_TRAILER_MAX. */
size_t sw_icrc_finish(uint32_t crc, uint32_t payload_len, uint8_t *trailer);

/* Carries a difference of two CRCs back to the identification. It depends on the length of the
 * datagram alone, and is kept for the last one. All zeros to begin with; one for each thread. */
struct sw_icrc_rewind {
    size_t datagram_len;
    uint32_t power;
};

/* Whether the ICRC at the end of a datagram of this flow is right, for any identification if it
 * came by IPv4. *ip_id is the one to be tried first: that of the packet before and one more is a
 * good guess, 0 with DF at the beginning. A wrong guess costs some 50 ns. On success *ip_id is what
 * the sender had. One damaged packet in 2^15 passes (over IPv6, one in 2^32). Datagrams that
 * sw_packet_decode() refuses as truncated are wrong. */
bool sw_icrc_check(const struct sw_icrc_flow *flow, struct sw_icrc_prefix *prefix,
                   const uint8_t *datagram, size_t len, struct sw_icrc_rewind *rewind,
                   struct sw_ip_id *ip_id);

#endif
