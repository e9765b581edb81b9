/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A RoCEv2 peer by hand: one unconnected UDP socket of an ordinary user, and the codec of src/wire.
 * The kernel at the other end judges what it sends.
 */
#ifndef SW_TESTS_KERNEL_PEER_H
#define SW_TESTS_KERNEL_PEER_H

#include <netinet/in.h>
#include <stdbool.h>

#include "wire/icrc.h"
#include "wire/packet.h"

enum { PEER_DATAGRAM_MAX = 4096 + SW_HEADERS_MAX + SW_TRAILER_MAX };

struct peer {
    int fd;
    struct sockaddr_in6 to; /* large enough for IPv4, too */
    socklen_t to_len;
    struct sw_flow out;
    struct sw_icrc_flow out_icrc;
    struct sw_icrc_rewind rewind;
    int bad; /* datagrams that came with a wrong ICRC or were no packets */
};

struct received {
    struct sw_packet packet; /* its payload lies in bytes */
    struct sw_ip_id ip_id;
    uint8_t bytes[PEER_DATAGRAM_MAX];
};

/* From `own` to `guest`, both addresses of one family. Exits the program if that cannot be. */
void peer_open(struct peer *peer, const char *own, const char *guest);

/* The datagram of a packet, with the ICRC for this identification. Returns its length. */
size_t peer_encode(const struct peer *peer, const struct sw_packet *packet, uint16_t ip_id,
                   uint8_t to[PEER_DATAGRAM_MAX]);
void peer_send_bytes(const struct peer *peer, const uint8_t *datagram, size_t len);
void peer_send(const struct peer *peer, const struct sw_packet *packet);
/* Datagrams of one length in one call: the kernel numbers them 0, 1, 2, ... */
void peer_send_segments(const struct peer *peer, const uint8_t *datagrams, size_t len,
                        size_t segment_len);

/* The next packet from the guest, with its ICRC checked. false: none within that time. */
bool peer_receive(struct peer *peer, struct received *received, int timeout_ms);

#endif
