/* SPDX-License-Identifier: BSD-2-Clause */
/* UD: datagrams in and out. */
#ifndef SW_LINK_ROCE_DATAGRAM_H
#define SW_LINK_ROCE_DATAGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "link/link.h"
#include "link/roce/port/arrival.h"
#include "wire/packet.h"

struct sw_qp;

enum sw_link_sent sw_roce_send_datagram(struct sw_qp *qp, uint32_t position);
/* To processes of this host, whatever the network can carry: to a group that it has no way to. */
enum sw_link_sent sw_roce_give_datagram(struct sw_qp *qp, uint32_t position, const uint16_t *slots,
                                        uint32_t count);
bool sw_roce_deliver_datagram(struct sw_qp *qp, const struct sw_arrival *arrival,
                              const struct sw_packet *packet);
struct sw_stream_origin;
/* A TCP connection brings datagrams from here on (port/stream.h). Negative errno: the socket is
 * still the caller's. */
int sw_roce_take_stream(int fd, const struct sw_stream_origin *origin);
void sw_roce_deliver_to_group(const struct sw_arrival *arrival, const struct sw_packet *packet);

#endif
