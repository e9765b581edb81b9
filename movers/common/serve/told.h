/* SPDX-License-Identifier: BSD-2-Clause */
/* One line in a second at most about what strangers can cause as often as they like. */
#ifndef SW_MOVERS_TOLD_H
#define SW_MOVERS_TOLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/time/clock.h"

/* All zeroes to begin with. Threads may share it. */
struct mover_told {
    _Atomic uint64_t at_ns, untold;
};

/* False: the last line is too young, and this one is counted. True: it is to be written, with what
 * mover_told_end() says. */
static inline bool mover_told_begin(struct mover_told *told)
{
    const uint64_t now_ns = mover_now_ns();
    uint64_t before_ns = told->at_ns;
    if ((!before_ns || now_ns - before_ns >= NS_PER_S) &&
        atomic_compare_exchange_strong(&told->at_ns, &before_ns, now_ns))
        return true;
    told->untold++;
    return false;
}

/* How many had no line since the last one. */
static inline uint64_t mover_told_end(struct mover_told *told)
{
    return atomic_exchange(&told->untold, 0);
}

#endif
