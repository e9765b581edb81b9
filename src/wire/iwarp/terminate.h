/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Terminate, the last message of a connection that fails: where the fault was seen, its code, and
 * the headers of what was at fault. RFC 5040 s4.8, s7; the codes of DDP RFC 5041 s7, those of MPA
 * RFC 5044 s8 and RFC 6581 s10.
 *
 * siw on little-endian machines writes the first and the third byte the other way round, since they
 * are bit fields there: that form is understood as well.
 */
#ifndef SW_WIRE_IWARP_TERMINATE_H
#define SW_WIRE_IWARP_TERMINATE_H

#include "wire/iwarp/ddp.h"

/* Byte 0, layer and type of the fault; and byte 1. */
#define SW_TERMINATE(where, code) ((uint16_t)((where) << 8 | (code)))
enum sw_terminate_cause {
    SW_TERMINATE_LOCAL = SW_TERMINATE(0x00, 0x00),

    SW_TERMINATE_READ_STAG = SW_TERMINATE(0x01, 0x00), /* RDMAP, protection */
    SW_TERMINATE_READ_BOUNDS = SW_TERMINATE(0x01, 0x01),
    SW_TERMINATE_RIGHTS = SW_TERMINATE(0x01, 0x02),
    SW_TERMINATE_READ_OWNER = SW_TERMINATE(0x01, 0x03),
    SW_TERMINATE_READ_WRAP = SW_TERMINATE(0x01, 0x04),
    SW_TERMINATE_INVALIDATE = SW_TERMINATE(0x01, 0x09),

    SW_TERMINATE_RDMAP_VERSION = SW_TERMINATE(0x02, 0x05), /* RDMAP, operation */
    SW_TERMINATE_OPCODE = SW_TERMINATE(0x02, 0x06),
    SW_TERMINATE_STREAM = SW_TERMINATE(0x02, 0x07),
    SW_TERMINATE_UNSPECIFIED = SW_TERMINATE(0x02, 0xff),

    SW_TERMINATE_STAG = SW_TERMINATE(0x11, 0x00), /* DDP, tagged */
    SW_TERMINATE_BOUNDS = SW_TERMINATE(0x11, 0x01),
    SW_TERMINATE_OWNER = SW_TERMINATE(0x11, 0x02),
    SW_TERMINATE_WRAP = SW_TERMINATE(0x11, 0x03),
    SW_TERMINATE_VERSION = SW_TERMINATE(0x11, 0x04),

    SW_TERMINATE_QUEUE = SW_TERMINATE(0x12, 0x01), /* DDP, untagged */
    SW_TERMINATE_NO_RECEIVE = SW_TERMINATE(0x12, 0x02),
    SW_TERMINATE_MSN = SW_TERMINATE(0x12, 0x03),
    SW_TERMINATE_MO = SW_TERMINATE(0x12, 0x04),
    SW_TERMINATE_TOO_LONG = SW_TERMINATE(0x12, 0x05),
    SW_TERMINATE_VERSION_QUEUE = SW_TERMINATE(0x12, 0x06),

    SW_TERMINATE_CRC = SW_TERMINATE(0x20, 0x02), /* MPA */
    SW_TERMINATE_FRAME = SW_TERMINATE(0x20, 0x03),
    SW_TERMINATE_START = SW_TERMINATE(0x20, 0x04),
    SW_TERMINATE_CATASTROPHE = SW_TERMINATE(0x20, 0x05),
    SW_TERMINATE_IRD = SW_TERMINATE(0x20, 0x06),
    SW_TERMINATE_RTR = SW_TERMINATE(0x20, 0x07),
};

enum { SW_TERMINATE_MAX = 4 + 2 + SW_DDP_HEADER_MAX + SW_RDMAP_READ_BYTES };

struct sw_terminate {
    uint16_t cause;       /* enum sw_terminate_cause, or what is not known */
    uint16_t segment_len; /* of the ULPDU at fault; 0: not told */
    bool is_swapped;      /* came in siw's form */
    uint8_t ddp_len;      /* 0: its header is not told */
    uint8_t read_len;     /* 0 or SW_RDMAP_READ_BYTES */
    uint8_t ddp[SW_DDP_HEADER_MAX];
    uint8_t read[SW_RDMAP_READ_BYTES];
};

/* One about a segment, as far as it is there, or about none (NULL). */
struct sw_terminate sw_terminate_about(uint16_t cause, const uint8_t *ulpdu, uint32_t len);

/* Writes the body; returns its length, at most SW_TERMINATE_MAX. */
uint32_t sw_terminate_encode(const struct sw_terminate *terminate, uint8_t *to);

/* False: it is too short to say anything. Headers that are promised and not whole are left out. */
bool sw_terminate_check(const uint8_t *body, uint32_t len);
void sw_terminate_decode(const uint8_t *body, uint32_t len, struct sw_terminate *out);

#endif
