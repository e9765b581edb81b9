/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QP 1: the MADs of connection management, as datagrams. Every process that shares the UDP port
 * gets those that the kernel gives to its socket. IBTA Vol1 9.8.3, 12.6, 13.4.
 */
#ifndef SW_LINK_ROCE_MAD_H
#define SW_LINK_ROCE_MAD_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/mad.h"
#include "wire/packet.h"

struct sw_arrival;
struct sw_icrc_flow;

/* `arrival` has the addresses, seen from here its source is the other end. rx_lock held: what comes
 * is to be put aside. */
typedef void (*sw_roce_mad_fn)(const struct sw_arrival *arrival, const uint8_t mad[SW_MAD_BYTES]);
/* Sets the receiver of MADs; before the port is opened. They are dropped while there is nobody. */
void sw_roce_on_mad(sw_roce_mad_fn take);

/* Sends one, or drops it for want of room, as a wire would. GIDs, IPv4 addresses mapped; `ifindex`
 * counts for link-local ones. `attempt`: another number leaves from another source port; what was
 * not answered may have come to a process of that host that is stopped. 0; a negative errno where
 * there is no way: see sw_roce_open() and sw_roce_path_set(). */
int sw_roce_send_mad(const uint8_t source[16], const uint8_t dest[16], uint32_t ifindex,
                     uint32_t attempt, const uint8_t mad[SW_MAD_BYTES]);

/* The whole packet that a message is, for a socket which is not the port's. Returns its length. */
enum { SW_ROCE_MAD_PACKET_BYTES = SW_HEADERS_MAX + SW_MAD_BYTES + SW_ICRC_BYTES };
size_t sw_roce_mad_packet(const struct sw_icrc_flow *flow, const uint8_t mad[SW_MAD_BYTES],
                          uint8_t packet[SW_ROCE_MAD_PACKET_BYTES]);

/* A packet for QP 1; rx_lock held. */
void sw_roce_deliver_mad(const struct sw_arrival *arrival, const struct sw_packet *packet);

#endif
