/* SPDX-License-Identifier: BSD-2-Clause */
/* What the AETH says: the syndrome's classes, and its two code tables. IBTA Vol1 9.7.5.1, tables 45
 * (syndrome), 46 (RNR timers), 58 (NAK codes), 59 (credits). */
#ifndef SW_WIRE_AETH_H
#define SW_WIRE_AETH_H

#include <stdint.h>

enum sw_aeth_class { SW_AETH_ACK, SW_AETH_RNR, SW_AETH_RESERVED, SW_AETH_NAK };

enum sw_nak_code {
    SW_NAK_CODE_PSN,
    SW_NAK_CODE_INVALID_REQUEST,
    SW_NAK_CODE_ACCESS,
    SW_NAK_CODE_OPERATIONAL,
    SW_NAK_CODE_INVALID_RD,
};

enum { SW_AETH_VALUE_MASK = 0x1f, SW_AETH_NO_CREDITS = 0x1f };

/* A syndrome: bit 7 is reserved, bits 6:5 are the class, bits 4:0 credits, timer or NAK code. */
static inline enum sw_aeth_class sw_aeth_class_of(uint8_t syndrome)
{
    return (enum sw_aeth_class)(syndrome >> 5 & 3);
}

static inline uint8_t sw_aeth_value_of(uint8_t syndrome)
{
    return syndrome & SW_AETH_VALUE_MASK;
}

static inline uint8_t sw_aeth_syndrome(enum sw_aeth_class class, uint8_t value)
{
    return (uint8_t)(class << 5 | (value & SW_AETH_VALUE_MASK));
}

/* How long a 5-bit RNR timer code asks to wait: 10 us to 655.36 ms (which is code 0). */
uint64_t sw_rnr_timer_ns(uint8_t code);

/* How many receives a credit code stands for; UINT32_MAX: the receiver does not count
 * (SW_AETH_NO_CREDITS). */
uint32_t sw_aeth_credits(uint8_t code);

/* The code for the most that is not more than this many receives. */
uint8_t sw_aeth_credit_code(uint32_t credits);

#endif
