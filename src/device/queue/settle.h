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

#endif
