/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the files of the port. */
#ifndef SW_LINK_ROCE_SOCKET_H
#define SW_LINK_ROCE_SOCKET_H

#include <sys/socket.h>

#include "link/roce/port.h"

/* port.c */
bool sw_socket_set(int fd, int level, int name, int value);
int sw_socket_udp(bool is_ipv4);
/* One that receives RoCE packets, sharing the port with others; or a negative errno. */
int sw_socket_receiving(bool is_ipv4, const struct in6_addr *address, uint16_t udp_port,
                        uint32_t ifindex);
/* NULL: there is no room. A connected one is not listened to yet. */
struct sw_rx_socket *sw_port_add_rx_socket(struct sw_port *port, int fd,
                                           enum sw_rx_socket_kind kind);
/* What comes to the socket wakes whoever sleeps on the port. */
bool sw_port_listen(struct sw_port *port, int fd);

/* rx.c: what the kernel puts packets into */
int sw_port_open_intake(struct sw_port *port);
void sw_port_close_intake(struct sw_port *port);

/* The MADs among what was to be handed on to a process that is not there: this one's connection
 * manager, which does not know what they are about, says so. `message` is of sw_share_parse(). */
void sw_port_take_mads(struct sw_port *port, const uint8_t *message, uint32_t len_bytes);

/* One message of the kernel: a run of equal packets, the last of them perhaps shorter. */
struct sw_rx_batch {
    const uint8_t *bytes;
    uint32_t len_bytes;
    uint32_t segment_bytes;
    struct sw_arrival arrival; /* all but the bytes */
};

/* share.c */
int sw_share_open(struct sw_port *port);
void sw_share_close(struct sw_port *port);

#define SW_HANDED_BYTES (128u << 10) /* of one message */
/* Gives packets of another slot to its process, now or with the next flush. */
void sw_share_hand_on(struct sw_port *port, uint32_t slot, const struct sw_rx_batch *batch);
/* Sends what was given. What a process has no room for is kept for a while; port->due_ns says when
 * to try again. */
void sw_share_flush(struct sw_port *port);

/* The other side of it: what processes say to each other. */
enum sw_handed_kind {
    SW_HANDED_PACKETS, /* of the flow, as they came */
    SW_HANDED_ASK, /* "I hear this flow from now on: tell me when you have handed on the rest" */
    SW_HANDED_DONE,
};
struct sw_handed {
    enum sw_handed_kind kind;
    uint32_t slot; /* whose word it is */
    struct sw_rx_batch batch;
};
/* The first word in a message. Returns the bytes it takes there; 0: it is none. */
uint32_t sw_share_parse(const uint8_t *message, uint32_t len_bytes, struct sw_handed *out);
/* Whether a message came from the socket of the process with that slot, as the kernel has it. */
bool sw_share_is_of(const struct msghdr *message, uint32_t slot);
/* Has the kernel bring packets like those that `slot` handed on here in future, which are not read
 * before that one has handed on all. */
void sw_share_connect(struct sw_port *port, const struct sw_arrival *arrival, uint32_t slot,
                      uint64_t now_ns);
/* A message of packets for this process came by a socket of the port's own: where all are of one
 * flow, the kernel is asked for that. */
void sw_share_note(struct sw_port *port, const struct sw_arrival *arrival, uint64_t now_ns);
/* A packet of the flow was for another process, which is going to ask for it. */
void sw_share_note_other(struct sw_port *port, const struct sw_arrival *arrival, uint64_t now_ns);
/* One of the port's own sockets has just been found empty. */
void sw_share_note_empty(struct sw_port *port, const struct sw_rx_socket *rx, uint64_t now_ns);
/* Answers an ASK, once what waits in the sockets of the port has been handed on; hears a DONE. */
void sw_share_answer(struct sw_port *port, const struct sw_handed *ask);
void sw_share_settle(struct sw_port *port, const struct sw_handed *done, uint64_t now_ns);
/* Whether the connected socket may be read. */
bool sw_share_is_settled(struct sw_port *port, struct sw_rx_socket *rx, uint64_t now_ns);

#endif
