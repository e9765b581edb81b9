/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the files of the port. */
#ifndef SW_LINK_ROCE_SOCKET_H
#define SW_LINK_ROCE_SOCKET_H

#include "link/roce/port.h"

/* port.c */
bool sw_socket_set(int fd, int level, int name, int value);
int sw_socket_udp(bool is_ipv4);
/* One that receives RoCE packets, sharing the port with others; or a negative errno. */
int sw_socket_ear(bool is_ipv4, const struct in6_addr *address, uint16_t udp_port,
                  uint32_t ifindex);
/* False: there is no room. */
bool sw_port_add_ear(struct sw_port *port, int fd, enum sw_ear_kind kind);

/* receive.c: what the kernel puts packets into */
int sw_port_open_intake(struct sw_port *port);
void sw_port_close_intake(struct sw_port *port);

/* One message of the kernel: a run of equal packets, the last of them perhaps shorter. */
struct sw_haul {
    const uint8_t *bytes;
    uint32_t len_bytes;
    uint32_t segment_bytes;
    struct sw_arrival arrival; /* all but the bytes */
};
/* share.c */
int sw_share_open(struct sw_port *port);
/* Packets on their way to another process. */
#define SW_HANDED_BYTES (128u << 10) /* of one message */
struct sw_stage {
    uint32_t slot;
    uint32_t packets;
    uint32_t len_bytes;
    uint8_t bytes[SW_HANDED_BYTES];
};
/* Gives packets of another slot to its process, now or with the next flush. */
void sw_share_hand_on(struct sw_port *port, struct sw_stage *stage, uint32_t slot,
                      const struct sw_haul *haul);
void sw_share_flush(struct sw_port *port, struct sw_stage *stage);
/* The other side of it: the first haul in a message. Returns the bytes it takes there; 0: it is
 * none. */
uint32_t sw_share_parse(const uint8_t *message, uint32_t len_bytes, struct sw_haul *out);
/* Has the kernel bring packets like this one here in future. */
void sw_share_tune(struct sw_port *port, const struct sw_arrival *arrival, uint64_t now_ns);

#endif
