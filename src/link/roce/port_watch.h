/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a packet wakes the engine.
 *
 * The engine watches the port while it receives, and leaves it watched when a program begins to
 * poll. Then each packet wakes the engine on some processor, the program has taken the packet by
 * that time, and epoll sleeps on without a word: neither side learns that the wake was in vain. So
 * who polls looks at that: if polls have taken in what would wake the engine for a while, they end
 * the watch. The engine watches again as soon as it is to receive.
 */
#ifndef SW_LINK_ROCE_PORT_WATCH_H
#define SW_LINK_ROCE_PORT_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

struct sw_port_watch {
    struct sw_lock lock; /* held by the thread that begins or ends it */
    atomic_bool is_on;
    uint64_t polled_ns; /* when a poll last looked; port.rx_lock held */
    uint64_t taken_ns;  /* since when polls without a pause take the packets in; 0: they do not */
};

/* Begins it, if it is not on. `epoll`: the port's. Any thread. */
void sw_port_watch_begin(struct sw_port_watch *watch, int epoll);
/* It has told of a packet, and is over by that; the engine's thread. */
void sw_port_watch_told(struct sw_port_watch *watch);
/* Ends it, unless `sleeps` is set: a program is about to sleep, and somebody must be woken. Returns
 * whether it did. Any thread. */
bool sw_port_watch_end(struct sw_port_watch *watch, int epoll, const atomic_bool *sleeps);
/* What a poll has received while it is on; port.rx_lock held. Returns whether it wakes the engine
 * in vain. */
bool sw_port_watch_is_vain(struct sw_port_watch *watch, uint32_t received, uint64_t now_ns);

static inline bool sw_port_watch_is_on(const struct sw_port_watch *watch)
{
    return atomic_load_explicit(&watch->is_on, memory_order_relaxed);
}

#endif
