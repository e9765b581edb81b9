/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending datagrams to processes of this host; receive.h says how they travel. */
#ifndef SW_LINK_DIRECT_DATAGRAM_SEND_H
#define SW_LINK_DIRECT_DATAGRAM_SEND_H

struct sw_qp;

/* Sends what waits, a bounded step. With the QP locked. */
void sw_datagram_run(struct sw_qp *qp);
/* Engine: lets go of processes that died. */
void sw_datagram_forget_dead(void);
void sw_datagram_send_fork_child(void);

#endif
