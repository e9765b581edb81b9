/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TCP connections that bring datagrams (docs/tcp.md). A datagram that comes by one is treated as a
 * packet of UDP from its peer's address, and is believed no more than that. With rx_lock held.
 */
#ifndef SW_LINK_ROCE_PORT_STREAM_H
#define SW_LINK_ROCE_PORT_STREAM_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_port;

#define SW_STREAMS_MAX 1024u        /* of all hosts */
#define SW_STREAMS_FDS_PARTS 8u     /* and of the descriptors one in so many */
#define SW_STREAMS_ADDRESS_PARTS 2u /* of these an address has one in so many */

struct sw_stream_origin {
    struct in6_addr source, dest; /* the peer's address, and the one that it has called */
    uint32_t ifindex;             /* of a link-local one; else 0 */
    bool has_crc;
};

/* Reads the socket from here on, and closes it in the end. Where there are too many, one goes that
 * was silent for longest (link/callers.h), and what it has brought is delivered. Negative errno:
 * the socket is still the caller's. */
int sw_streams_add(struct sw_port *port, int fd, const struct sw_stream_origin *origin,
                   uint64_t now_ns);
/* Delivers what waits. Returns the number of packets delivered; *more is set if there is more. */
uint32_t sw_streams_receive(struct sw_port *port, uint64_t now_ns, bool *more);
/* Closes all of them, also in a forked child. */
void sw_streams_close(struct sw_port *port);

#endif
