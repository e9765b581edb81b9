/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/crc32c.h"

#include <assert.h>
#include <isa-l/crc.h>

#include "wire/vector_halves.h"

uint32_t sw_crc32c_add(uint32_t crc, const void *bytes, size_t len)
{
    assert(len <= INT32_MAX);
    if (len == 0)
        return crc;
    /* ISA-L begins with, and gives back, what is not inverted yet. */
    crc = ~crc32_iscsi((unsigned char *)bytes, (int)len, ~crc);
    sw_vector_halves_release();
    return crc;
}
