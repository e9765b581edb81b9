/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/aeth.h"

uint64_t sw_rnr_timer_ns(uint8_t code)
{
    /* In units of 10 us. */
    static const uint32_t timers[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                        16,    24,   32,   48,    64,    96,    128,   192,
                                        256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                        4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
    return timers[code & SW_AETH_VALUE_MASK] * 10000ull;
}

static const uint16_t credit_table[31] = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

uint32_t sw_aeth_credits(uint8_t code)
{
    code &= SW_AETH_VALUE_MASK;
    return code == SW_AETH_NO_CREDITS ? UINT32_MAX : credit_table[code];
}

uint8_t sw_aeth_credit_code(uint32_t credits)
{
    uint8_t code = SW_AETH_NO_CREDITS - 1;
    while (credit_table[code] > credits)
        code--;
    return code;
}
