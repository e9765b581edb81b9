/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers as they lie on the wire: most significant byte first, at any alignment. */
#ifndef SW_WIRE_BYTES_H
#define SW_WIRE_BYTES_H

#include <stdint.h>

static inline uint16_t sw_be16_load(const uint8_t *from)
{
    return (uint16_t)(from[0] << 8 | from[1]);
}

static inline uint32_t sw_be24_load(const uint8_t *from)
{
    return (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];
}

static inline uint32_t sw_be32_load(const uint8_t *from)
{
    return (uint32_t)sw_be16_load(from) << 16 | sw_be16_load(from + 2);
}

static inline uint64_t sw_be64_load(const uint8_t *from)
{
    return (uint64_t)sw_be32_load(from) << 32 | sw_be32_load(from + 4);
}

static inline void sw_be16_store(uint8_t *to, uint16_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
}

static inline void sw_be24_store(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)(value >> 16);
    sw_be16_store(to + 1, (uint16_t)value);
}

static inline void sw_be32_store(uint8_t *to, uint32_t value)
{
    sw_be16_store(to, (uint16_t)(value >> 16));
    sw_be16_store(to + 2, (uint16_t)value);
}

static inline void sw_be64_store(uint8_t *to, uint64_t value)
{
    sw_be32_store(to, (uint32_t)(value >> 32));
    sw_be32_store(to + 4, (uint32_t)value);
}

/* The ICRC is the one number that lies the other way round. */
static inline uint32_t sw_le32_load(const uint8_t *from)
{
    return (uint32_t)from[3] << 24 | (uint32_t)from[2] << 16 | (uint32_t)from[1] << 8 | from[0];
}

static inline void sw_le32_store(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

#endif
