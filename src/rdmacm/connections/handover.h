/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What other hosts are told when this process ends without a word. A kernel sends DREQ for the
 * connections of a process that is killed; here another process of the same port does. Each process
 * keeps a list of its connections with other hosts in a memfd and hands it over to another process,
 * its successor (local_successor.h), which sees when this one ends.
 *
 * sw_rdmacm_lock held in all calls.
 */
#ifndef SW_RDMACM_CONNECTIONS_HANDOVER_H
#define SW_RDMACM_CONNECTIONS_HANDOVER_H

#include <stdint.h>

struct sw_ucm_id;

/* After whatever may have changed the state of the ID's connection. */
void sw_ucm_handover_note(struct sw_ucm_id *id);
/* The ID is about to be freed. */
void sw_ucm_handover_forget(struct sw_ucm_id *id);

/* The process of that slot has ended, and this was its list. Disconnects what is in it, and closes
 * it. Engine's thread. */
void sw_ucm_handover_disconnect(uint32_t slot, int fd);
/* Sends again what may have been lost; returns when next. UINT64_MAX: never. */
uint64_t sw_ucm_handover_tick(uint64_t now_ns);

void sw_ucm_handover_fork_child(void);

#endif
