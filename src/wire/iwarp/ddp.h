/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A segment of DDP with the control byte of RDMAP: what an FPDU carries. RFC 5041 s4, RFC 5040
 * s4.1.
 *
 *   tagged:   ctrl 2 | STag 4 | TO 8                           | payload
 *   untagged: ctrl 2 | STag to invalidate 4 | QN 4 | MSN 4 | MO 4 | payload
 *
 * The codec refuses what no segment looks like. Whether one is in its place (MSN, MO, tokens,
 * rights) is for transport/iwarp/ to say.
 */
#ifndef SW_WIRE_IWARP_DDP_H
#define SW_WIRE_IWARP_DDP_H

#include "wire/iwarp/rdmap.h"

enum sw_ddp_len {
    SW_DDP_TAGGED_BYTES = 14,
    SW_DDP_UNTAGGED_BYTES = 18,
    SW_DDP_HEADER_MAX = SW_DDP_UNTAGGED_BYTES,
};

struct sw_ddp_segment {
    const struct sw_rdmap_opcode *opcode;
    bool last;
    uint32_t stag; /* tagged; untagged: to be invalidated */
    uint64_t to;   /* tagged */
    uint32_t queue, msn, mo;
    uint32_t payload_len;
    const uint8_t *payload;
};

enum sw_ddp_fault {
    SW_DDP_FAULT_NONE,
    SW_DDP_FAULT_SHORT,         /* shorter than its header */
    SW_DDP_FAULT_VERSION,       /* of DDP, in a tagged segment */
    SW_DDP_FAULT_VERSION_QUEUE, /* the same in an untagged one */
    SW_DDP_FAULT_QUEUE,         /* there is no such queue */
    SW_DDP_FAULT_RDMAP_VERSION,
    SW_DDP_FAULT_OPCODE, /* unknown, or not in a segment of this kind or queue */
    SW_DDP_FAULT_LENGTH, /* a body of another length, or not whole in its segment */
    SW_DDP_FAULT_COUNT
};

enum sw_ddp_fault sw_ddp_check(const uint8_t *ulpdu, uint32_t len);
/* What sw_ddp_check() found right; the payload stays where it lies. */
void sw_ddp_decode(const uint8_t *ulpdu, uint32_t len, struct sw_ddp_segment *out);

static inline uint32_t sw_ddp_header_len(const struct sw_rdmap_opcode *opcode)
{
    return opcode->is_tagged ? SW_DDP_TAGGED_BYTES : SW_DDP_UNTAGGED_BYTES;
}

/* Writes the header of a segment, the queue being that of its opcode; returns its length. */
uint32_t sw_ddp_encode(const struct sw_ddp_segment *segment, uint8_t *to);

#endif
