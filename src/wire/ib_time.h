/* SPDX-License-Identifier: BSD-2-Clause */
/* Times as packets and attributes of queue pairs say them: 4.096 us * 2^n, with five bits for n
 * (IBTA Vol1 9.9.2.1.1, 12.7.34). */
#ifndef SW_WIRE_IB_TIME_H
#define SW_WIRE_IB_TIME_H

#include <stdint.h>

static inline uint64_t sw_ib_time_ns(uint32_t exponent)
{
    return 4096ull << (exponent & 31);
}

#endif
