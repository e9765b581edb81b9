/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_DEADLINE_H
#define SW_MOVERS_DEADLINE_H

#include <assert.h>
#include <stdint.h>

#include "common/time/clock.h"

/* The milliseconds that poll() or epoll_wait() may sleep until a deadline, `longest_ms` at most.
 * They are rounded up: after a sleep that was not cut short, the deadline has passed. 0: it has
 * passed already. */
static inline int mover_ms_until(uint64_t deadline_ns, uint64_t now_ns, int longest_ms)
{
    assert(longest_ms >= 0); /* -1 would be for ever */
    if (now_ns >= deadline_ns)
        return 0;
    const uint64_t left_ns = deadline_ns - now_ns;
    const uint64_t left_ms = left_ns / NS_PER_MS + (left_ns % NS_PER_MS != 0);
    return left_ms < (uint64_t)longest_ms ? (int)left_ms : longest_ms;
}

#endif
