/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The frame of MPA around each segment of DDP: RFC 5044 s4.
 *
 *   u16 length of the ULPDU | ULPDU | 0-3 bytes of pad | CRC-32C of all before it
 *
 * The CRC lies least significant byte first. Its four bytes are there without CRCs, too: zeros, and
 * not looked at, but between queue pairs of RoCE devices. There another word says that the data was
 * taken away while the FPDU left: it is void (docs/tcp.md). Markers are not supported, as by all
 * software peers.
 */
#ifndef SW_WIRE_IWARP_FPDU_H
#define SW_WIRE_IWARP_FPDU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SW_FPDU_LENGTH_BYTES = 2,
    SW_FPDU_CRC_BYTES = 4,
    SW_FPDU_TRAILER_MAX = 3 + SW_FPDU_CRC_BYTES,
    SW_FPDU_ULPDU_MAX = 65535,
    SW_FPDU_MAX = SW_FPDU_LENGTH_BYTES + SW_FPDU_ULPDU_MAX + SW_FPDU_TRAILER_MAX,
};

static inline uint32_t sw_fpdu_pad(uint32_t ulpdu_len)
{
    return -(ulpdu_len + SW_FPDU_LENGTH_BYTES) & 3;
}

static inline uint32_t sw_fpdu_len(uint32_t ulpdu_len)
{
    return SW_FPDU_LENGTH_BYTES + ulpdu_len + sw_fpdu_pad(ulpdu_len) + SW_FPDU_CRC_BYTES;
}

/* The longest ULPDU whose FPDU has at most so many bytes, which are 8 and more. */
uint32_t sw_fpdu_ulpdu_max(uint32_t fpdu_max);

/* Writes what follows the ULPDU, where `crc` is that of the length and the ULPDU. Returns its
 * length, at most SW_FPDU_TRAILER_MAX. */
uint32_t sw_fpdu_finish(uint32_t crc, uint32_t ulpdu_len, bool has_crc, uint8_t *trailer);

/* Whether the CRC at the end of a whole FPDU is right. */
bool sw_fpdu_is_intact(const uint8_t *fpdu, uint32_t ulpdu_len);

/* Without CRCs, in their place: the FPDU is void. */
void sw_fpdu_set_void(uint8_t crc[SW_FPDU_CRC_BYTES]);
bool sw_fpdu_is_void(const uint8_t *fpdu, uint32_t ulpdu_len);

#endif
