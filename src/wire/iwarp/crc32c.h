/* SPDX-License-Identifier: BSD-2-Clause */
/* CRC-32C (Castagnoli), which MPA puts behind each FPDU: RFC 5044 s4.4. By ISA-L. */
#ifndef SW_WIRE_IWARP_CRC32C_H
#define SW_WIRE_IWARP_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of what `crc` is of and these bytes behind it; 0 is that of nothing. At most 2 GiB. */
uint32_t sw_crc32c_add(uint32_t crc, const void *bytes, size_t len);

#endif
