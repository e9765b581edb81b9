/* SPDX-License-Identifier: BSD-2-Clause */
/* What a request packet asks for, and whether it may: by itself and by its place in the message. */
#include <string.h>

#include "transport/responder_impl.h"

#define MESSAGE_MAX (1ull << 31)

enum sw_demand_kind sw_demand_kind_of(enum sw_packet_kind kind)
{
    static const uint8_t kinds[] = {
        [SW_PACKET_SEND] = SW_DEMAND_SEND,
        [SW_PACKET_WRITE] = SW_DEMAND_WRITE,
        [SW_PACKET_READ_REQUEST] = SW_DEMAND_READ,
        [SW_PACKET_CMP_SWAP] = SW_DEMAND_CMP_SWAP,
        [SW_PACKET_FETCH_ADD] = SW_DEMAND_FETCH_ADD,
        [SW_PACKET_FLUSH] = SW_DEMAND_FLUSH,
        [SW_PACKET_ATOMIC_WRITE] = SW_DEMAND_ATOMIC_WRITE,
    };
    return (enum sw_demand_kind)kinds[kind];
}

/* How many PSNs a request takes. */
static uint32_t demand_count_of(const struct sw_responder *r, const struct sw_packet *packet)
{
    if (packet->opcode->kind != SW_PACKET_READ_REQUEST || packet->reth.len_bytes == 0)
        return 1;
    return ((packet->reth.len_bytes - 1) >> r->mtu_shift) + 1;
}

void sw_demand_describe(const struct sw_responder *r, const struct sw_packet *packet, uint32_t seq,
                        struct sw_demand *out)
{
    uint16_t headers = packet->opcode->headers;
    *out = (struct sw_demand){
        .kind = sw_demand_kind_of((enum sw_packet_kind)packet->opcode->kind),
        .first = packet->opcode->position & SW_FIRST,
        .last = packet->opcode->position & SW_LAST,
        .has_imm = headers & SW_HEADER_IMM,
        .has_inv = headers & SW_HEADER_IETH,
        .solicited = packet->bth.solicited,
        .imm_be = packet->imm_be,
        .inv_rkey = packet->inv_rkey,
        .srq_num = packet->srq_num,
        .flush_type = packet->flush_type,
        .payload = packet->payload,
        .len_bytes = packet->payload_len,
        .pieces = 1,
        .seq = seq,
        .count = demand_count_of(r, packet),
        .ack_req = packet->bth.ack_req,
    };
    if (headers & SW_HEADER_RETH) {
        out->addr = packet->reth.addr;
        out->rkey = packet->reth.rkey;
        out->total = packet->reth.len_bytes;
    } else if (headers & SW_HEADER_ATOMIC) {
        bool adds = out->kind == SW_DEMAND_FETCH_ADD;
        out->addr = packet->atomic.addr;
        out->rkey = packet->atomic.rkey;
        out->total = sizeof(uint64_t);
        out->compare_add = adds ? packet->atomic.swap_add : packet->atomic.compare;
        out->swap = adds ? 0 : packet->atomic.swap_add;
    } else if (!out->first) {
        out->addr = r->addr + r->offset;
        out->rkey = r->rkey;
        out->total = r->total;
        out->offset = r->offset;
    }
    if (out->kind == SW_DEMAND_ATOMIC_WRITE && out->len_bytes == SW_ATOMIC_WRITE_BYTES)
        memcpy(&out->compare_add, out->payload, SW_ATOMIC_WRITE_BYTES);
}

bool sw_demand_is_legal(const struct sw_responder *r, const struct sw_demand *d)
{
    const uint32_t parts = d->last ? 1 : d->pieces; /* of this message */
    uint64_t mtu = r->config.mtu_bytes, end = d->offset + (uint64_t)d->len_bytes * parts;
    if (d->first == r->under_way || (!d->first && (uint8_t)d->kind != r->kind))
        return false;
    switch (d->kind) {
    case SW_DEMAND_WRITE:
        if (d->total > MESSAGE_MAX || end > d->total || (d->last && end != d->total))
            return false;
        break;
    case SW_DEMAND_SEND:
        if (end > MESSAGE_MAX)
            return false;
        break;
    case SW_DEMAND_READ:
        return d->total <= MESSAGE_MAX;
    case SW_DEMAND_ATOMIC_WRITE:
        return d->total == SW_ATOMIC_WRITE_BYTES && d->len_bytes == SW_ATOMIC_WRITE_BYTES;
    case SW_DEMAND_CMP_SWAP:
    case SW_DEMAND_FETCH_ADD:
    case SW_DEMAND_FLUSH:
        return true;
    }
    if (!d->last)
        return d->len_bytes == mtu;
    return d->len_bytes <= mtu && (d->first || d->len_bytes > 0);
}
