/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/ddp.h"

#include "wire/bytes.h"

/* The two control bytes: DDP's, RDMAP's. */
enum { TAGGED = 0x80, LAST = 0x40, VERSION_MASK = 0x03, VERSION = 1 };
enum { RDMAP_VERSION_MASK = 0xc0, RDMAP_VERSION = 0x40, OPCODE_MASK = 0x0f };

static enum sw_ddp_fault check_opcode(const uint8_t *ulpdu, uint32_t len)
{
    const struct sw_rdmap_opcode *opcode = sw_rdmap_opcode_of(ulpdu[1] & OPCODE_MASK);
    const bool is_tagged = ulpdu[0] & TAGGED;
    if ((ulpdu[1] & RDMAP_VERSION_MASK) != RDMAP_VERSION)
        return SW_DDP_FAULT_RDMAP_VERSION;
    if (!opcode || opcode->is_tagged != is_tagged)
        return SW_DDP_FAULT_OPCODE;
    if (!is_tagged && opcode->queue != sw_be32_load(ulpdu + 6))
        return SW_DDP_FAULT_OPCODE;
    const uint32_t body_len = len - sw_ddp_header_len(opcode);
    if (opcode->body_len && (body_len != opcode->body_len || !(ulpdu[0] & LAST)))
        return SW_DDP_FAULT_LENGTH;
    return SW_DDP_FAULT_NONE;
}

enum sw_ddp_fault sw_ddp_check(const uint8_t *ulpdu, uint32_t len)
{
    if (len < 2)
        return SW_DDP_FAULT_SHORT;
    const bool is_tagged = ulpdu[0] & TAGGED;
    if ((ulpdu[0] & VERSION_MASK) != VERSION)
        return is_tagged ? SW_DDP_FAULT_VERSION : SW_DDP_FAULT_VERSION_QUEUE;
    if (len < (is_tagged ? SW_DDP_TAGGED_BYTES : SW_DDP_UNTAGGED_BYTES))
        return SW_DDP_FAULT_SHORT;
    if (!is_tagged && sw_be32_load(ulpdu + 6) >= SW_DDP_QUEUES)
        return SW_DDP_FAULT_QUEUE;
    return check_opcode(ulpdu, len);
}

void sw_ddp_decode(const uint8_t *ulpdu, uint32_t len, struct sw_ddp_segment *out)
{
    const struct sw_rdmap_opcode *opcode = sw_rdmap_opcode_of(ulpdu[1] & OPCODE_MASK);
    const uint32_t header_len = sw_ddp_header_len(opcode);
    *out = (struct sw_ddp_segment){
        .opcode = opcode,
        .last = ulpdu[0] & LAST,
        .stag = sw_be32_load(ulpdu + 2),
        .payload_len = len - header_len,
        .payload = ulpdu + header_len,
    };
    if (opcode->is_tagged) {
        out->to = sw_be64_load(ulpdu + 6);
    } else {
        out->queue = sw_be32_load(ulpdu + 6);
        out->msn = sw_be32_load(ulpdu + 10);
        out->mo = sw_be32_load(ulpdu + 14);
    }
}

uint32_t sw_ddp_encode(const struct sw_ddp_segment *segment, uint8_t *to)
{
    const struct sw_rdmap_opcode *opcode = segment->opcode;
    to[0] = (uint8_t)((opcode->is_tagged ? TAGGED : 0) | (segment->last ? LAST : 0) | VERSION);
    to[1] = (uint8_t)(RDMAP_VERSION | opcode->number);
    sw_be32_store(to + 2, segment->stag);
    if (opcode->is_tagged) {
        sw_be64_store(to + 6, segment->to);
        return SW_DDP_TAGGED_BYTES;
    }
    sw_be32_store(to + 6, opcode->queue);
    sw_be32_store(to + 10, segment->msn);
    sw_be32_store(to + 14, segment->mo);
    return SW_DDP_UNTAGGED_BYTES;
}
