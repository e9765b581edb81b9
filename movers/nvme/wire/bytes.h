/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers and texts at places that may not be aligned. */
#ifndef SW_MOVERS_NVME_BYTES_H
#define SW_MOVERS_NVME_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t nvf_le16_at(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof(value));
    return le16toh(value);
}

static inline uint32_t nvf_le32_at(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof(value));
    return le32toh(value);
}

static inline uint64_t nvf_le64_at(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return le64toh(value);
}

/* A text as NVMe has it: blanks up to its end, and no NUL. */
static inline void nvf_pad(char *to, size_t size, const char *from)
{
    const size_t len = strnlen(from, size);
    memcpy(to, from, len);
    memset(to + len, ' ', size - len);
}

#endif
