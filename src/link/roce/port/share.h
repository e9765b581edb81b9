/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that share the UDP port hand on each other's packets. Called with rx_lock held. */
#ifndef SW_LINK_ROCE_PORT_SHARE_H
#define SW_LINK_ROCE_PORT_SHARE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "link/roce/port/rx_batch.h"
#include "link/roce/port/rx_socket.h"

struct sw_port;

int sw_share_open(struct sw_port *port);
void sw_share_close(struct sw_port *port);

#define SW_HANDED_BYTES (128u << 10) /* of one message */
/* Hands packets on to the process of another slot, now or with the next flush. */
void sw_share_hand_on(struct sw_port *port, uint32_t slot, const struct sw_rx_batch *batch);
/* Sends what was handed on. Packets that a process has no room for are kept for a while;
 * port->due_ns says when to try again. */
void sw_share_flush(struct sw_port *port);

/* Gives the process of a slot, which may be this one, a packet that no network has brought. False:
 * it has no room, and is waited for. Any thread, without rx_lock. */
bool sw_share_give(struct sw_port *port, uint32_t slot, const struct sw_rx_batch *packet);

/* The kinds of messages between these processes. */
enum sw_handed_kind {
    SW_HANDED_PACKETS, /* of the flow, as they came */
    SW_HANDED_ASK, /* "I hear this flow from now on: tell me when you have handed on the rest" */
    SW_HANDED_DONE,
};
struct sw_handed {
    enum sw_handed_kind kind;
    uint32_t slot; /* the sender's */
    struct sw_rx_batch batch;
};
/* Reads the first part of a message. Returns its length in bytes; 0: it is malformed. */
uint32_t sw_share_parse(const uint8_t *message, uint32_t len_bytes, struct sw_handed *out);
/* Whether a message came from the process with that slot: the kernel tells whose socket it was. */
bool sw_share_is_of(const struct msghdr *message, uint32_t slot);
/* Opens a connected socket for the flow that `slot` has handed on: the kernel brings it here in
 * future. The socket is not read until `slot` has handed on all it had. */
void sw_share_connect(struct sw_port *port, const struct sw_arrival *arrival, uint32_t slot,
                      uint64_t now_ns);
/* Packets for this process came by a socket of the port. If nearly all belong to one flow, that
 * flow gets a connected socket, too. */
void sw_share_note(struct sw_port *port, const struct sw_arrival *arrival, uint64_t now_ns);
/* A packet of the flow was for another process, which will ask for the flow. */
void sw_share_note_other(struct sw_port *port, const struct sw_arrival *arrival, uint64_t now_ns);
/* One of the port's own sockets has just been found empty. */
void sw_share_note_empty(struct sw_port *port, const struct sw_rx_socket *rx, uint64_t now_ns);
/* Answers an ASK, once all that waits in the port's sockets has been handed on. */
void sw_share_answer(struct sw_port *port, const struct sw_handed *ask);
/* Handles a DONE. */
void sw_share_settle(struct sw_port *port, const struct sw_handed *done, uint64_t now_ns);
/* Whether the connected socket may be read. */
bool sw_share_is_settled(struct sw_port *port, struct sw_rx_socket *rx, uint64_t now_ns);

#endif
