/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connected socket, for many messages to one address. The kernel remembers its route,
 * addresses and class, where it asks the tables for each message of another socket.
 *
 * A stream of long messages gets a ring besides, for zero-copy transmit. The kernel copies what a
 * socket sends, which costs as much as all else on the sending side. From a ring it takes the pages
 * themselves (vmsplice(2), splice(2) to UDP: Linux 6.5), and nobody writes to them while they are
 * on their way. A page written to too early would be no more than a packet with a wrong ICRC.
 *
 * The kernel numbers the IPv4 packets of a connected socket from where it likes: the sender asks
 * what the number is, once, by a packet to this host whose headers it is shown
 * (SOF_TIMESTAMPING_TX_SCHED).
 *
 * Lock order: a batch's lock < a connected sender's, which is only tried.
 */
#ifndef SW_LINK_ROCE_PORT_CONNECTED_SENDER_H
#define SW_LINK_ROCE_PORT_CONNECTED_SENDER_H

#include "link/roce/port/port.h"

struct sw_connected_sender;
enum { SW_CONNECTED_SENDER_ROOM_BYTES = 65536 };

/* Whether long messages are spliced: this kernel can, and SIDEWIRE_SPLICE is not "never". */
bool sw_connected_sender_is_possible(void);

/* The sender of a path, locked until it is released; NULL: there is none, or another thread has
 * it. */
struct sw_connected_sender *sw_connected_sender_claim(struct sw_port *port,
                                                      const struct sw_roce_path *path);
void sw_connected_sender_release(struct sw_connected_sender *sender);
bool sw_connected_sender_is_of(const struct sw_connected_sender *sender,
                               const struct sw_roce_path *path);

/* The identification of the next message's first packet; 0 by IPv6. Messages must be sent in the
 * order of these calls. */
uint16_t sw_connected_sender_take_id(struct sw_connected_sender *sender);

/* Room for a message of up to SW_CONNECTED_SENDER_ROOM_BYTES, which must be sent, in the order of
 * rooms; *ip_id will be the identification of its first packet. NULL: there is no ring, or what is
 * in it may all be on its way still. */
uint8_t *sw_connected_sender_room(struct sw_connected_sender *sender, uint16_t *ip_id);

/* Sends what lies in a room as packets of `segment_bytes`, the last one perhaps shorter. 0;
 * -EAGAIN: no room in the socket, to be called again with the same when there is; or another
 * negative errno: it is lost, and so is all until the release, when the sender is closed. */
int sw_connected_sender_send(struct sw_connected_sender *sender, const uint8_t *room,
                             uint32_t len_bytes, uint32_t segment_bytes);
void sw_connected_sender_give_up(struct sw_connected_sender *sender,
                                 int error); /* as if that had failed */
bool sw_connected_sender_is_spoilt(const struct sw_connected_sender *sender);

/* The socket, for messages that have no room: to be sent without addresses. They are cut into
 * packets of sw_connected_sender_segment() bytes unless they say otherwise. */
int sw_connected_sender_fd(const struct sw_connected_sender *sender);
uint32_t sw_connected_sender_segment(const struct sw_connected_sender *sender);
/* Whether a send that failed is to be tried again, as it failed for what befell an earlier one. */
bool sw_connected_sender_is_old_news(int error);

/* A message went this way without a connected sender. Opens one when there have been many. */
void sw_connected_sender_want(struct sw_port *port, const struct sw_roce_path *path,
                              uint64_t now_ns);
/* A long message left by the claimed sender without a room. Makes a ring when there have been
 * many. */
void sw_connected_sender_want_ring(struct sw_connected_sender *sender);

/* Closes those that have not been used for long. Returns whether there are others, for which this
 * is to be called again. */
bool sw_connected_sender_tidy(uint64_t now_ns);
void sw_connected_sender_close_all(const struct sw_port *port);
void sw_connected_sender_fork_child(void);

#endif
