/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets in: what the port receives into. Its other functions are in port.h. */
#ifndef SW_LINK_ROCE_PORT_RX_H
#define SW_LINK_ROCE_PORT_RX_H

#include <stdbool.h>
#include <stdint.h>

struct sw_port;

int sw_port_open_intake(struct sw_port *port);
void sw_port_close_intake(struct sw_port *port);

struct sw_rx_batch;
/* Checks, and delivers or hands on, the packets of a batch. Returns how many were delivered;
 * *is_known: from a sender that is. */
uint32_t sw_port_take_batch(struct sw_port *port, const struct sw_rx_batch *batch, bool *is_known);

/* The MADs among what was to be handed on to a process that is not there: this one's connection
 * manager, which does not know what they are about, says so. `message` is of sw_share_parse(). */
void sw_port_take_mads(struct sw_port *port, const uint8_t *message, uint32_t len_bytes);

#endif
