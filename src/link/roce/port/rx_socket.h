/* SPDX-License-Identifier: BSD-2-Clause */
/* A socket that the port receives from. */
#ifndef SW_LINK_ROCE_PORT_RX_SOCKET_H
#define SW_LINK_ROCE_PORT_RX_SOCKET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "link/roce/port/rx_lone.h"

enum sw_rx_socket_kind {
    SW_RX_SOCKET_UDP,       /* whatever comes to the UDP port */
    SW_RX_SOCKET_CONNECTED, /* UDP, of one flow: share.h */
    SW_RX_SOCKET_HANDED,    /* from other processes of this host: share.h */
};

struct sw_rx_socket {
    int fd;
    enum sw_rx_socket_kind kind;
    uint64_t heard_ns;
    uint32_t bytes_mean; /* of the kernel's messages, lately */
    uint32_t want;       /* messages that the next call asks for; 0 as 1 */
    uint32_t full;       /* calls in a row that got as many as they asked for */

    /* For a connected one. */
    struct in6_addr remote, local;
    uint16_t remote_port;
    bool is_pure;           /* what came before it was connected has been read */
    uint8_t hop_limit;      /* of the packet that it was opened for; 0: not known */
    uint8_t traffic_class;  /* of the last packet of which it was told */
    uint32_t ifindex;       /* where that one came in */
    uint32_t asked_slot;    /* the process that had the flow before; 0: it does not run */
    uint64_t held_until_ns; /* not read before, or before the other process has handed on all that
                               it had of the flow; 0: it is read */
    uint64_t turned_ns;     /* since when the kernel brings it nothing more, and it is about to be
                               closed; 0: it does */
    struct sw_rx_lone lone;
};

#endif
