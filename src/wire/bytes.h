/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers as they lie on the wire: most significant byte first, at any alignment. */
#ifndef SW_WIRE_BYTES_H
#define SW_WIRE_BYTES_H

#include <stdint.h>
#include <string.h>

#define SW_QPN_MASK 0xffffffu /* a QPN or SRQ number has 24 bits */

/* Host order to the wire's, and back. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define SW_BE(bits, value) __builtin_bswap##bits(value)
#define SW_LE32(value) (value)
#else
#define SW_BE(bits, value) (value)
#define SW_LE32(value) __builtin_bswap32(value)
#endif

static inline uint16_t sw_be16_load(const uint8_t *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof(value));
    return SW_BE(16, value);
}

static inline uint32_t sw_be24_load(const uint8_t *from)
{
    return (uint32_t)from[0] << 16 | sw_be16_load(from + 1);
}

static inline uint32_t sw_be32_load(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof(value));
    return SW_BE(32, value);
}

static inline uint64_t sw_be64_load(const uint8_t *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof(value));
    return SW_BE(64, value);
}

static inline void sw_be16_store(uint8_t *to, uint16_t value)
{
    value = SW_BE(16, value);
    memcpy(to, &value, sizeof(value));
}

static inline void sw_be24_store(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)(value >> 16);
    sw_be16_store(to + 1, (uint16_t)value);
}

static inline void sw_be32_store(uint8_t *to, uint32_t value)
{
    value = SW_BE(32, value);
    memcpy(to, &value, sizeof(value));
}

static inline void sw_be64_store(uint8_t *to, uint64_t value)
{
    value = SW_BE(64, value);
    memcpy(to, &value, sizeof(value));
}

/* The ICRC is the one number that lies the other way round. */
static inline uint32_t sw_le32_load(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof(value));
    return SW_LE32(value);
}

static inline void sw_le32_store(uint8_t *to, uint32_t value)
{
    value = SW_LE32(value);
    memcpy(to, &value, sizeof(value));
}

#endif
