/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending datagrams; receive.h says how they travel on this host. */
#ifndef SW_LINK_DIRECT_DATAGRAM_SEND_H
#define SW_LINK_DIRECT_DATAGRAM_SEND_H

#include <infiniband/verbs.h>
#include <stdint.h>

struct sw_qp;

/* Sends what waits, a bounded step. With the QP locked. */
void sw_datagram_run(struct sw_qp *qp);
/* Sends the front of a list that is not queued yet, as far as nothing is out of the ordinary, and
 * at most so many; returns how many. With the QP locked. */
uint32_t sw_datagram_ahead(struct sw_qp *qp, const struct ibv_send_wr *wr, uint32_t most);

#endif
