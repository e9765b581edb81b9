/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The thread that handles the events of a channel. A kernel sleeps while it destroys an ID, so a
 * thread that has just acknowledged the last event runs meanwhile, and is back in GET_EVENT when
 * the program closes the channel. rping relies on it: its thread ends the program with an error if
 * it comes later. Here an ID is gone within a microsecond. So whoever destroys the last ID of a
 * channel waits for that thread, as long as it has something to do.
 */
#ifndef SW_RDMACM_CONNECTIONS_GETTER_H
#define SW_RDMACM_CONNECTIONS_GETTER_H

#include <stdint.h>

struct sw_ucm_channel;

/* This thread takes an event along. */
void sw_ucm_getter_leaves(struct sw_ucm_channel *channel);
/* It is back, with a descriptor of the channel that nobody closes. */
void sw_ucm_getter_returns(uint64_t inode);
/* Waits while the channel has no ID and another thread works on its last event: 0.2 s at most, and
 * no thread again that did not come by then. It may sleep elsewhere, or be gone: it is not waited
 * for. Takes sw_rdmacm_lock. */
void sw_ucm_getter_await(uint64_t inode);

#endif
