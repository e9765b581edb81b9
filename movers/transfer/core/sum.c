/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/core/sum.h"

#include <isa-l/crc.h>

enum { PIECE = 1 << 30 }; /* ISA-L counts bytes in an int */

uint32_t xfc_sum(uint32_t sum, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    while (bytes) {
        const size_t piece = bytes < PIECE ? bytes : PIECE;
        /* Its sums are not inverted. It only reads, though its pointer is not const. */
        sum = ~crc32_iscsi((unsigned char *)(uintptr_t)at, (int)piece, ~sum);
        at += piece;
        bytes -= piece;
    }
    return sum;
}
