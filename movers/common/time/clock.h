/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_CLOCK_H
#define SW_MOVERS_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "common/time/units.h"

/* CLOCK_MONOTONIC in nanoseconds, as deadlines have it. */
static inline uint64_t mover_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

#endif
