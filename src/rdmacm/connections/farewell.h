/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * DISCONNECTED comes after the completions of what the peer had received before it disconnected.
 * On hardware the ACK precedes the DREQ. Here the two come by different sockets, and over packets
 * perhaps to different processes: so what the peer has said is taken in first, and where an answer
 * may still be on its way, it gets a moment.
 *
 * sw_rdmacm_lock held in all calls.
 */
#ifndef SW_RDMACM_CONNECTIONS_FAREWELL_H
#define SW_RDMACM_CONNECTIONS_FAREWELL_H

#include <stdint.h>

struct sw_ucm_id;

/* The peer has disconnected: tells the program, now or soon. */
void sw_ucm_farewell_hear(struct sw_ucm_id *id);
/* Tells the program now, if that has not been done. */
void sw_ucm_farewell_finish(struct sw_ucm_id *id);
/* It need not be told any more. */
void sw_ucm_farewell_forget(struct sw_ucm_id *id);

/* Tells what is due; returns when next. UINT64_MAX: never. Engine's thread. */
uint64_t sw_ucm_farewell_tick(uint64_t now_ns);

void sw_ucm_farewell_fork_child(void);

#endif
