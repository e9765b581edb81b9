/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The successor: another process of this user that holds a descriptor of ours and acts on it when
 * this process ends (handover.h). Both keep a connection for it, whose end is the sign to act.
 *
 * sw_rdmacm_lock held in all calls.
 */
#ifndef SW_RDMACM_MADS_LOCAL_SUCCESSOR_H
#define SW_RDMACM_MADS_LOCAL_SUCCESSOR_H

#include <stdbool.h>
#include <stdint.h>

struct sw_local_connection;

/* Another process is to get the descriptor when this one ends. */
void sw_local_hand_over(int fd);

/* A process that could be the successor, where there is none yet. */
void sw_local_successor_offer(uint32_t slot);
/* The connection has proven itself: hands the descriptor over. false: it could not be sent. */
bool sw_local_successor_give(const struct sw_local_connection *connection);
/* The process may not look into us, or we not into it: it will not be asked again ... */
void sw_local_successor_refused(uint32_t slot);
/* ... until it shows that it may. */
void sw_local_successor_allowed(uint32_t slot);
/* A connection is about to be freed: was it the successor's, so another one is looked for. */
void sw_local_successor_forget(const struct sw_local_connection *connection);

void sw_local_successor_fork_child(void);

#endif
