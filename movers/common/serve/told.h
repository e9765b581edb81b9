/* SPDX-License-Identifier: BSD-2-Clause */
/* One line in a second at most about what strangers can cause as often as they like. */
#ifndef SW_MOVERS_TOLD_H
#define SW_MOVERS_TOLD_H

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/time/clock.h"

/* All zeroes to begin with. Threads may share it. */
struct mover_told {
    _Atomic uint64_t at_ns, untold;
};

/* False: the last line is too young, and this one is counted. True: it is to be written, and ended
 * by mover_told_end(). */
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

/* Ends the line on stderr, with the number of those that had none. */
static inline void mover_told_end(struct mover_told *told)
{
    const uint64_t others = atomic_exchange(&told->untold, 0);
    if (others)
        fprintf(stderr, " (and %" PRIu64 " others since the last such line)", others);
    fputc('\n', stderr);
}

#endif
