/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests to other hosts that nothing was heard of. A kernel has a connection manager on each
 * host, which refuses at once what nobody listens for. Here a host may have no process at all: its
 * kernel says so (link/door.h), and the request ends as if a manager had refused it.
 *
 * sw_rdmacm_lock held in all calls.
 */
#ifndef SW_RDMACM_CONNECTIONS_UNHEARD_H
#define SW_RDMACM_CONNECTIONS_UNHEARD_H

#include <stdint.h>

struct sw_ucm_id;

/* Its request has just been sent. */
void sw_ucm_unheard_begin(struct sw_ucm_id *id);
void sw_ucm_unheard_forget(struct sw_ucm_id *id);

/* Probes where that is due; returns when next. UINT64_MAX: never. Engine's thread. */
uint64_t sw_ucm_unheard_tick(uint64_t now_ns);

void sw_ucm_unheard_fork_child(void);

#endif
