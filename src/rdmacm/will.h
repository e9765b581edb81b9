/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is to be said to other hosts should this process end without a word: a kernel says DREQ for
 * the connections of a process that is killed, here another process of the same port does. Each
 * process keeps a list of its connections with other hosts in a memfd, its will, and gives it to
 * another process (local.h), which sees when this one ends.
 *
 * sw_rdmacm_lock held in all calls.
 */
#ifndef SW_RDMACM_WILL_H
#define SW_RDMACM_WILL_H

#include <stdint.h>

struct sw_ucm_id;

/* After whatever may have changed the state of the ID's connection. */
void sw_ucm_will_note(struct sw_ucm_id *id);
/* The ID is about to be freed. */
void sw_ucm_will_forget(struct sw_ucm_id *id);

/* The process of that slot has ended, and this was its will: closes it. Engine's thread. */
void sw_ucm_will_execute(uint32_t slot, int fd);
/* Says again what may have been lost; returns when next. UINT64_MAX: never. */
uint64_t sw_ucm_will_tick(uint64_t now_ns);

void sw_ucm_will_fork_child(void);

#endif
