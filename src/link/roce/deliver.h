/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets to queue pairs. With rx_lock held. */
#ifndef SW_LINK_ROCE_DELIVER_H
#define SW_LINK_ROCE_DELIVER_H

#include <stdbool.h>

#include "link/roce/port/arrival.h"
#include "wire/packet.h"

struct sw_qp;

/* As struct sw_port has it. */
bool sw_roce_deliver(void *arg, const struct sw_arrival *arrival);
/* A single one that has passed the rules for faults; `qp` NULL: for QP 1 or a group. Returns
 * whether its sender is known. */
bool sw_roce_deliver_passed(struct sw_qp *qp, const struct sw_arrival *arrival,
                            const struct sw_packet *packet);
/* Finds whom a packet is for, or each of a run: a QP, or (NULL) QP 1 or a group; *packet is the
 * first. False: nobody, or it is no packet. */
bool sw_roce_find_receiver(const struct sw_arrival *arrival, struct sw_packet *packet,
                           struct sw_qp **qp);
/* After the last packet: sends what the last QP has to say, and lets go of it. `is_polled`: its
 * program is about to look at what came. */
void sw_roce_deliver_end(bool is_polled);

#endif
