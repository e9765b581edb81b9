/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/packet.h"

#include <assert.h>
#include <string.h>

#include "wire/bytes.h"
#include "wire/psn.h"

static_assert(SW_HEADERS_MAX >= SW_BTH_BYTES + SW_XRCETH_BYTES + SW_ATOMIC_BYTES, "XRC CmpSwap");

enum { SOLICITED = 0x80, MIG_REQ = 0x40, PAD_SHIFT = 4, VERSION_MASK = 0x0f };
enum { FECN = 0x80, BECN = 0x40, RESERVED6 = 0x3f, ACK_REQ = 0x80, RESERVED7 = 0x7f };

static uint8_t pad_of(const uint8_t *bth)
{
    return bth[1] >> PAD_SHIFT & 3;
}

static void bth_decode(const uint8_t *from, struct sw_bth *bth)
{
    *bth = (struct sw_bth){
        .opcode = from[0],
        .solicited = from[1] & SOLICITED,
        .mig_req = from[1] & MIG_REQ,
        .pad = pad_of(from),
        .version = from[1] & VERSION_MASK,
        .pkey = sw_be16_load(from + 2),
        .fecn = from[4] & FECN,
        .becn = from[4] & BECN,
        .reserved6 = from[4] & RESERVED6,
        .dest_qpn = sw_be24_load(from + 5),
        .ack_req = from[8] & ACK_REQ,
        .reserved7 = from[8] & RESERVED7,
        .psn = sw_be24_load(from + 9),
    };
}

static void bth_encode(const struct sw_bth *bth, uint32_t pad, uint8_t *to)
{
    to[0] = bth->opcode;
    to[1] = (uint8_t)((bth->solicited ? SOLICITED : 0) | (bth->mig_req ? MIG_REQ : 0) |
                      pad << PAD_SHIFT | (bth->version & VERSION_MASK));
    sw_be16_store(to + 2, bth->pkey);
    to[4] =
        (uint8_t)((bth->fecn ? FECN : 0) | (bth->becn ? BECN : 0) | (bth->reserved6 & RESERVED6));
    sw_be24_store(to + 5, bth->dest_qpn);
    to[8] = (uint8_t)((bth->ack_req ? ACK_REQ : 0) | (bth->reserved7 & RESERVED7));
    sw_be24_store(to + 9, bth->psn & SW_PSN_MASK);
}

/* An AETH, a reserved byte, and the PSN that a packet of its own would have. */
static void piggyback_decode(const uint8_t *from, struct sw_packet *packet)
{
    packet->aeth = (struct sw_aeth){.syndrome = from[0], .msn = sw_be24_load(from + 1)};
    packet->acked_psn = sw_be24_load(from + 5);
}

static void piggyback_encode(const struct sw_packet *packet, uint8_t *to)
{
    to[0] = packet->aeth.syndrome;
    sw_be24_store(to + 1, packet->aeth.msn);
    to[4] = 0;
    sw_be24_store(to + 5, packet->acked_psn & SW_PSN_MASK);
}

/* The caller has seen that all of them are there. */
static void extended_decode(const uint8_t *from, struct sw_packet *packet)
{
    uint16_t headers = packet->opcode->headers;
    if (headers & SW_HEADER_XRCETH) {
        packet->srq_num = sw_be24_load(from + 1);
        from += SW_XRCETH_BYTES;
    }
    if (headers & SW_HEADER_DETH) {
        packet->deth =
            (struct sw_deth){.qkey = sw_be32_load(from), .src_qpn = sw_be24_load(from + 5)};
        from += SW_DETH_BYTES;
    }
    if (headers & SW_HEADER_FETH) {
        packet->flush_type = sw_be32_load(from);
        from += SW_FETH_BYTES;
    }
    if (headers & SW_HEADER_RETH) {
        packet->reth = (struct sw_reth){.addr = sw_be64_load(from),
                                        .rkey = sw_be32_load(from + 8),
                                        .len_bytes = sw_be32_load(from + 12)};
        from += SW_RETH_BYTES;
    }
    if (headers & SW_HEADER_ATOMIC) {
        packet->atomic = (struct sw_atomic_eth){.addr = sw_be64_load(from),
                                                .rkey = sw_be32_load(from + 8),
                                                .swap_add = sw_be64_load(from + 12),
                                                .compare = sw_be64_load(from + 20)};
        from += SW_ATOMIC_BYTES;
    }
    if (headers & SW_HEADER_AETH) {
        packet->aeth = (struct sw_aeth){.syndrome = from[0], .msn = sw_be24_load(from + 1)};
        from += SW_AETH_BYTES;
    }
    if (headers & SW_HEADER_ATOMIC_ACK) {
        packet->original = sw_be64_load(from);
        from += SW_ATOMIC_ACK_BYTES;
    }
    if (headers & SW_HEADER_IMM)
        memcpy(&packet->imm_be, from, SW_IMM_BYTES);
    if (headers & SW_HEADER_IETH)
        packet->inv_rkey = sw_be32_load(from);
    if (headers & SW_HEADER_PIGGYBACK)
        piggyback_decode(from + (headers & (SW_HEADER_IMM | SW_HEADER_IETH) ? SW_IMM_BYTES : 0),
                         packet);
}

static void extended_encode(const struct sw_packet *packet, uint16_t headers, uint8_t *to)
{
    if (headers & SW_HEADER_XRCETH) {
        sw_be32_store(to, packet->srq_num & SW_QPN_MASK);
        to += SW_XRCETH_BYTES;
    }
    if (headers & SW_HEADER_DETH) {
        sw_be32_store(to, packet->deth.qkey);
        sw_be32_store(to + 4, packet->deth.src_qpn & SW_QPN_MASK);
        to += SW_DETH_BYTES;
    }
    if (headers & SW_HEADER_FETH) {
        sw_be32_store(to, packet->flush_type);
        to += SW_FETH_BYTES;
    }
    if (headers & SW_HEADER_RETH) {
        sw_be64_store(to, packet->reth.addr);
        sw_be32_store(to + 8, packet->reth.rkey);
        sw_be32_store(to + 12, packet->reth.len_bytes);
        to += SW_RETH_BYTES;
    }
    if (headers & SW_HEADER_ATOMIC) {
        sw_be64_store(to, packet->atomic.addr);
        sw_be32_store(to + 8, packet->atomic.rkey);
        sw_be64_store(to + 12, packet->atomic.swap_add);
        sw_be64_store(to + 20, packet->atomic.compare);
        to += SW_ATOMIC_BYTES;
    }
    if (headers & SW_HEADER_AETH) {
        to[0] = packet->aeth.syndrome;
        sw_be24_store(to + 1, packet->aeth.msn);
        to += SW_AETH_BYTES;
    }
    if (headers & SW_HEADER_ATOMIC_ACK) {
        sw_be64_store(to, packet->original);
        to += SW_ATOMIC_ACK_BYTES;
    }
    if (headers & SW_HEADER_IMM)
        memcpy(to, &packet->imm_be, SW_IMM_BYTES);
    if (headers & SW_HEADER_IETH)
        sw_be32_store(to, packet->inv_rkey);
    if (headers & SW_HEADER_PIGGYBACK)
        piggyback_encode(packet,
                         to + (headers & (SW_HEADER_IMM | SW_HEADER_IETH) ? SW_IMM_BYTES : 0));
    if (headers & SW_HEADER_CNP)
        memset(to, 0, SW_CNP_BYTES);
}

/* What is behind the headers: pad bytes of `rest` are no payload. */
static enum sw_packet_fault check_payload(const struct sw_opcode *opcode, uint32_t pad, size_t rest)
{
    if (pad > rest || (pad > 0 && !opcode->has_payload))
        return SW_PACKET_FAULT_PAD;
    if (rest > 0 && !opcode->has_payload)
        return SW_PACKET_FAULT_LENGTH;
    return SW_PACKET_FAULT_NONE;
}

enum sw_packet_fault sw_packet_decode(const uint8_t *datagram, size_t len, struct sw_packet *out)
{
    if (len < SW_BTH_BYTES + SW_ICRC_BYTES || len % 4 || len > SW_DATAGRAM_MAX)
        return SW_PACKET_FAULT_TRUNCATED;
    if (datagram[1] & VERSION_MASK)
        return SW_PACKET_FAULT_VERSION;
    const struct sw_opcode *opcode = sw_opcode_of(datagram[0]);
    if (!opcode)
        return SW_PACKET_FAULT_OPCODE;
    if (len < opcode->header_len + (size_t)SW_ICRC_BYTES)
        return SW_PACKET_FAULT_TRUNCATED;
    const size_t rest = len - opcode->header_len - SW_ICRC_BYTES;
    const uint32_t pad = pad_of(datagram);
    const enum sw_packet_fault fault = check_payload(opcode, pad, rest);
    if (fault)
        return fault;
    /* In place: a copy of what has just been written in parts waits for all stores before it, among
     * them the payload's of the packet before. */
    *out = (struct sw_packet){.opcode = opcode,
                              .payload = datagram + opcode->header_len,
                              .payload_len = (uint32_t)rest - pad};
    bth_decode(datagram, &out->bth);
    extended_decode(datagram + SW_BTH_BYTES, out);
    return SW_PACKET_FAULT_NONE;
}

size_t sw_packet_encode_headers(const struct sw_packet *packet, uint8_t *to, size_t room)
{
    const struct sw_opcode *opcode = sw_opcode_of(packet->bth.opcode);
    if (!opcode || room < opcode->header_len)
        return 0;
    bth_encode(&packet->bth, sw_packet_pad(packet->payload_len), to);
    extended_encode(packet, opcode->headers, to + SW_BTH_BYTES);
    return opcode->header_len;
}

bool sw_packet_asks(const uint8_t *headers)
{
    return headers[8] & ACK_REQ;
}

void sw_packet_ask(uint8_t *headers, bool ack_req)
{
    headers[8] = (uint8_t)((headers[8] & RESERVED7) | (ack_req ? ACK_REQ : 0));
}

void sw_packet_step(const struct sw_opcode *opcode, uint8_t *headers, uint32_t payload_len)
{
    uint8_t *psn = headers + 9, *reth = headers + SW_BTH_BYTES;
    sw_be24_store(psn, (sw_be24_load(psn) + 1) & SW_PSN_MASK);
    if (!(opcode->headers & SW_HEADER_RETH))
        return;
    if (opcode->headers & SW_HEADER_XRCETH)
        reth += SW_XRCETH_BYTES;
    if (opcode->headers & SW_HEADER_FETH)
        reth += SW_FETH_BYTES;
    sw_be64_store(reth, sw_be64_load(reth) + payload_len);
}

const char *sw_packet_fault_name(enum sw_packet_fault fault)
{
    static const char *const names[SW_PACKET_FAULT_COUNT] = {
        [SW_PACKET_FAULT_NONE] = "ok",
        [SW_PACKET_FAULT_TRUNCATED] = "truncated",
        [SW_PACKET_FAULT_VERSION] = "bad version",
        [SW_PACKET_FAULT_OPCODE] = "unknown opcode",
        [SW_PACKET_FAULT_PAD] = "pad where none may be",
        [SW_PACKET_FAULT_LENGTH] = "impossible length",
    };
    return names[fault];
}
