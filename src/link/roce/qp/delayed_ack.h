/* SPDX-License-Identifier: BSD-2-Clause */
/* ACKs that wait for a message to leave with (delayed_ack.c). With rx_lock held, and the given QP
 * locked. */
#ifndef SW_LINK_ROCE_QP_DELAYED_ACK_H
#define SW_LINK_ROCE_QP_DELAYED_ACK_H

#include <stdbool.h>
#include <stdint.h>

struct sw_qp;
struct sw_roce_qp;

enum {
    SW_DELAYED_ACK_RUN = 8,       /* packets that came together, of which the ACK may wait; */
    SW_DELAYED_ACK_ECHO_RUN = 64, /* the same where the program is expected to answer */
};
/* Whether the ACK of the requests that just came may wait, so many packets and no more than
 * SW_DELAYED_ACK_ECHO_RUN; `wakes`: the program sleeps until then. Where the program is expected to
 * answer, the NAK of a gap may wait, too. */
bool sw_delayed_ack_defer(struct sw_roce_qp *r, uint32_t packets, bool wakes, uint64_t now_ns);
bool sw_delayed_ack_any_waits(void);
/* Whether there are such that the engine has not seen; without rx_lock: of this thread's own. */
bool sw_delayed_ack_any_unseen(void);
/* Requests of the peer have come: whether the program is expected to answer them by one; `wakes`:
 * it sleeps until then. And: it has posted one. */
bool sw_delayed_ack_expects_echo(struct sw_roce_qp *r, bool wakes, uint64_t now_ns);
void sw_delayed_ack_note_echo(struct sw_roce_qp *r, uint64_t now_ns);
/* The engine's part: sends those that have waited for long. Returns when to call again. */
uint64_t sw_delayed_ack_step(uint64_t now_ns);
/* After a poll that found nothing. */
void sw_delayed_ack_note_empty_poll(void);
/* Sends those that wait. `is_late`: the program did not come back for it. */
void sw_delayed_ack_send(bool is_late);
void sw_delayed_ack_forget(const struct sw_qp *qp);
void sw_delayed_ack_fork_child(void);

#endif
