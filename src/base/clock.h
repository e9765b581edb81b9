/* SPDX-License-Identifier: BSD-2-Clause */
/* Monotonic time in nanoseconds. */
#ifndef SW_BASE_CLOCK_H
#define SW_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define SW_NS_PER_US 1000ull
#define SW_NS_PER_MS 1000000ull
#define SW_NS_PER_S 1000000000ull

static inline uint64_t sw_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SW_NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline struct timespec sw_time_of_ns(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / SW_NS_PER_S),
                             .tv_nsec = (long)(ns % SW_NS_PER_S)};
}

#endif
