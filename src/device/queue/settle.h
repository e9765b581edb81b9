/* SPDX-License-Identifier: BSD-2-Clause */
/* A NIC acknowledges what it receives before its program can say anything about it, and completes
 * what is acknowledged before its program hears of anything that came later. Here both may lag. */
#ifndef SW_DEVICE_QUEUE_SETTLE_H
#define SW_DEVICE_QUEUE_SETTLE_H

#include <stdbool.h>
#include <stdint.h>

/* Has the queue pair say what it owes its peer, and complete what its peer has said so far. True:
 * what it has sent is unanswered, and an answer may still be on its way here. A QPN that is none of
 * this process is settled. Takes nic.lock and locks below it. */
bool sw_qp_settle(uint32_t qpn);

/* For a program that goes to sleep until an event: moves the rest of what its posts have begun,
 * where only the budget of a turn has ended it, until `has_event` is true. Waking the engine for it
 * takes longer than a MiB, and the event that it brings has to wake the program again. Bounded. */
void sw_nic_finish_posts(bool (*has_event)(const void *arg), const void *arg);

#endif
