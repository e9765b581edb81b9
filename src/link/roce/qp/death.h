/* SPDX-License-Identifier: BSD-2-Clause */
/* What becomes of queue pairs whose peer has died, or leaves. */
#ifndef SW_LINK_ROCE_QP_DEATH_H
#define SW_LINK_ROCE_QP_DEATH_H

#include <stdint.h>

#include "link/roce/qp/qp.h"

struct sw_lifeline_departure;

/* rx_lock held, no QP locked. The process at the other end is dead. */
void sw_roce_end_with_peer(struct sw_lifeline *line);
void sw_roce_note_departure(const struct sw_lifeline_departure *departure);
/* With the QP locked: its timer has run out. DEAD: so is the peer, and the QP has failed. */
enum sw_roce_outcome sw_roce_excuse(struct sw_roce_qp *r, uint64_t now_ns);
/* With the QP locked, which has sent again after that: asks whether the peer's process runs.
 * `is_doubted`: and tells it the source port, as what goes by it may not arrive. */
void sw_roce_ask_again(struct sw_roce_qp *r, bool is_doubted);
/* Takes the queue pair's lock: the UDP port by which `qpn` sends to `dest_qpn`; 0: it does not. */
uint16_t sw_roce_source_port(uint32_t qpn, uint32_t dest_qpn);

#endif
