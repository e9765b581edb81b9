/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/fpdu.h"

#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "wire/bytes.h"
#include "wire/iwarp/crc32c.h"

#define VOID_WORD 0x44494f56u /* "VOID" */

uint32_t sw_fpdu_ulpdu_max(uint32_t fpdu_max)
{
    assert(fpdu_max >= SW_FPDU_LENGTH_BYTES + 2 + SW_FPDU_CRC_BYTES);
    const uint32_t len = (fpdu_max & ~3u) - SW_FPDU_LENGTH_BYTES - SW_FPDU_CRC_BYTES;
    return sw_min_u32(len, SW_FPDU_ULPDU_MAX);
}

uint32_t sw_fpdu_finish(uint32_t crc, uint32_t ulpdu_len, bool has_crc, uint8_t *trailer)
{
    const uint32_t pad = sw_fpdu_pad(ulpdu_len);
    memset(trailer, 0, pad);
    sw_le32_store(trailer + pad, has_crc ? sw_crc32c_add(crc, trailer, pad) : 0);
    return pad + SW_FPDU_CRC_BYTES;
}

bool sw_fpdu_is_intact(const uint8_t *fpdu, uint32_t ulpdu_len)
{
    const uint32_t covered = sw_fpdu_len(ulpdu_len) - SW_FPDU_CRC_BYTES;
    return sw_crc32c_add(0, fpdu, covered) == sw_le32_load(fpdu + covered);
}

void sw_fpdu_set_void(uint8_t crc[SW_FPDU_CRC_BYTES])
{
    sw_le32_store(crc, VOID_WORD);
}

bool sw_fpdu_is_void(const uint8_t *fpdu, uint32_t ulpdu_len)
{
    return sw_le32_load(fpdu + sw_fpdu_len(ulpdu_len) - SW_FPDU_CRC_BYTES) == VOID_WORD;
}
