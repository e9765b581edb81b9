/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable datagrams between processes of this host. The sender puts each into a ring in the
 * inbox that the receiver's process keeps for it; a poll of a CQ there that datagrams may complete
 * on takes out those that wait and delivers them. While no program polls, the engine does so for
 * CQs that are armed. A ring is a NIC's buffer: what finds no receive when it is taken out is
 * dropped, and a sender whose ring stays full waits for a bounded time, then drops.
 */
#ifndef SW_LINK_DIRECT_DATAGRAM_RECEIVE_H
#define SW_LINK_DIRECT_DATAGRAM_RECEIVE_H

#include <stdbool.h>
#include <stdint.h>

struct sw_cq;
struct sw_inbox;
struct sw_qp;

/* An inbox comes and goes; direct.lock held, but in a forked child, which is alone. */
void sw_datagram_open(struct sw_inbox *inbox);
void sw_datagram_close(struct sw_inbox *inbox);
/* True while something of its client's waits. */
bool sw_datagram_waits(const struct sw_inbox *inbox);
/* A UD QP may be delivered to, until sw_datagram_forget(). */
void sw_datagram_enter(struct sw_qp *qp);
void sw_datagram_forget(struct sw_qp *qp);
void sw_datagram_receive(struct sw_cq *cq, uint32_t want);
bool sw_datagram_any(void);
/* Engine: takes what waits where that is wanted; `armed`: a program sleeps until one comes. Returns
 * whether more is to be taken. */
bool sw_datagram_serve(bool armed);
/* Engine: delivers what dead clients left; when to call again. */
uint64_t sw_datagram_bury(uint64_t now_ns);
void sw_datagram_receive_fork_child(void);

#endif
