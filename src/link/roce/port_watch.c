/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/port_watch.h"

#include "base/clock.h"
#include "link/engine.h"

#define PAUSE_NS (10 * SW_NS_PER_US) /* polls come closer than that */
#define VAIN_NS (20 * SW_NS_PER_US)  /* longer than a program that was woken takes to sleep again */

/* `is_on` changes first: the event may come, and sw_port_watch_told() take it back, before this
 * thread goes on. */
void sw_port_watch_begin(struct sw_port_watch *watch, int epoll)
{
    if (atomic_load(&watch->is_on))
        return;
    sw_lock_acquire(&watch->lock);
    if (!atomic_exchange(&watch->is_on, true))
        sw_engine_watch_once(epoll, SW_WATCH_PORT);
    sw_lock_release(&watch->lock);
}

/* Without the lock: if another thread begins it meanwhile, it is on though this says that it is
 * not, and is begun once more. */
void sw_port_watch_told(struct sw_port_watch *watch)
{
    atomic_store(&watch->is_on, false);
}

/* A thread that is about to sleep sets `sleeps`, then finds that the watch is on; here it is the
 * other way round. So one of the two sees the other. If it is to stay on, it is asked for again: it
 * may have told of a packet between the two accesses, and a watch that is on but has told is begun
 * by nobody any more. */
bool sw_port_watch_end(struct sw_port_watch *watch, int epoll, const atomic_bool *sleeps)
{
    sw_lock_acquire(&watch->lock);
    bool ends = atomic_exchange(&watch->is_on, false);
    if (ends && atomic_load(sleeps)) {
        ends = false;
        atomic_store(&watch->is_on, true); /* first, as in sw_port_watch_begin() */
        sw_engine_watch_once(epoll, SW_WATCH_PORT);
    }
    if (ends)
        sw_engine_watch_nothing(epoll, SW_WATCH_PORT);
    sw_lock_release(&watch->lock);
    return ends;
}

bool sw_port_watch_is_vain(struct sw_port_watch *watch, uint32_t received, uint64_t now_ns)
{
    if (now_ns >= watch->polled_ns + PAUSE_NS)
        watch->taken_ns = 0;
    watch->polled_ns = now_ns;
    if (!received)
        return false;
    if (!watch->taken_ns)
        watch->taken_ns = now_ns;
    return now_ns >= watch->taken_ns + VAIN_NS;
}
