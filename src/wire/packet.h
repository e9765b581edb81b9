/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One RoCEv2 packet: what a UDP datagram to port 4791 carries. Bytes to a host struct and back; the
 * payload is not copied but looked at where it lies. IBTA Vol1 9.2 ff, A17.
 *
 *   BTH, extended headers by the opcode, payload, 0-3 bytes of pad, ICRC (wire/icrc.h)
 *
 * The codec refuses what is no packet. Whether a packet is in its place (its PSN, the path's MTU,
 * First before Last) is for the machines of transport/ to say: they answer some of it with a NAK.
 */
#ifndef SW_WIRE_PACKET_H
#define SW_WIRE_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/opcode.h"

enum {
    SW_ROCE_PORT = 4791,
    SW_DATAGRAM_MAX = 65535 - 28, /* of UDP over IPv4 */
    SW_ICRC_BYTES = 4,
    SW_TRAILER_MAX = 3 + SW_ICRC_BYTES,
    SW_ATOMIC_WRITE_BYTES = 8, /* the payload of ATOMIC WRITE */
    SW_PKEY_DEFAULT = 0xffff,
    SW_PKEY_MEMBER = 0x8000, /* full member; the other bits are the partition */
};

struct sw_bth {
    uint8_t opcode;
    uint8_t pad; /* bytes, 0-3 */
    uint8_t version;
    uint8_t reserved6; /* beside FECN and BECN, not covered by the ICRC */
    uint8_t reserved7; /* beside ack_req, covered by it */
    bool solicited;
    bool mig_req; /* hardware sets it, rxe does not; either is accepted */
    bool fecn;
    bool becn;
    bool ack_req;
    uint16_t pkey;
    uint32_t dest_qpn;
    uint32_t psn;
};

struct sw_reth {
    uint64_t addr;
    uint32_t rkey;
    uint32_t len_bytes;
};

struct sw_atomic_eth {
    uint64_t addr;
    uint64_t swap_add;
    uint64_t compare;
    uint32_t rkey;
};

struct sw_aeth {
    uint8_t syndrome; /* wire/aeth.h */
    uint32_t msn;
};

struct sw_deth {
    uint32_t qkey;
    uint32_t src_qpn;
};

/* FETH, as on the wire. */
enum sw_flush_type {
    SW_FLUSH_VISIBLE = 1 << 0,    /* placement type: global visibility */
    SW_FLUSH_PERSISTENT = 1 << 1, /* and persistence */
    SW_FLUSH_REGION = 1 << 4, /* selectivity level: the whole region, not the range of the RETH */
};

/* Memory that payloads lie in and that stays as it is while it has users. Its owner looks for that,
 * and gives to whom it gives packets the right to be a user, under one lock. */
struct sw_hold {
    uint32_t users;
};

/* Which of the headers are there is what opcode->headers says; the fields of the others are 0. */
struct sw_packet {
    const struct sw_opcode *opcode; /* that of bth.opcode; set by decoding */
    struct sw_bth bth;
    struct sw_reth reth;
    struct sw_atomic_eth atomic;
    uint64_t original; /* ATOMIC ACK: the word before */
    struct sw_aeth aeth;
    struct sw_deth deth;
    uint32_t imm_be; /* network byte order, as programs have it */
    uint32_t inv_rkey;
    uint32_t srq_num;    /* XRCETH */
    uint32_t acked_psn;  /* of a piggybacked ACK, beside `aeth` */
    uint32_t flush_type; /* enum sw_flush_type */
    uint32_t payload_len;
    const uint8_t *payload;
    struct sw_hold *hold; /* of the payload. NULL: it is there during a call only; after decoding */
};

/* Why a datagram is no packet. */
enum sw_packet_fault {
    SW_PACKET_FAULT_NONE,
    SW_PACKET_FAULT_TRUNCATED, /* shorter than its headers and the ICRC, too long for UDP, or no
                                  multiple of 4 */
    SW_PACKET_FAULT_VERSION,   /* a BTH of another version */
    SW_PACKET_FAULT_OPCODE,    /* unknown */
    SW_PACKET_FAULT_PAD,       /* more pad than bytes, or on a packet that has no payload */
    SW_PACKET_FAULT_LENGTH,    /* a payload where there is none */
    SW_PACKET_FAULT_COUNT
};
const char *sw_packet_fault_name(enum sw_packet_fault fault);

/* Takes a datagram apart, from the BTH to the ICRC, which is not looked at. *out is set on
 * SW_PACKET_FAULT_NONE only; its payload points into the datagram. */
enum sw_packet_fault sw_packet_decode(const uint8_t *datagram, size_t len, struct sw_packet *out);

/* Writes the headers of bth.opcode: its extended headers are taken from the fields of the same
 * names, the pad count from payload_len. Returns their length, or 0 when the opcode is unknown or
 * `room` too small; SW_HEADERS_MAX is always enough. */
size_t sw_packet_encode_headers(const struct sw_packet *packet, uint8_t *to, size_t room);

/* AckReq in encoded headers: whether it is set; and sets or clears it. */
bool sw_packet_asks(const uint8_t *headers);
void sw_packet_ask(uint8_t *headers, bool ack_req);

/* Makes encoded headers those of the packet that follows in a run, behind `payload_len` bytes: the
 * PSN counts up, and the address of a RETH. */
void sw_packet_step(const struct sw_opcode *opcode, uint8_t *headers, uint32_t payload_len);

static inline uint32_t sw_packet_pad(uint32_t payload_len)
{
    return -payload_len & 3;
}

/* The length of the whole datagram. */
static inline size_t sw_packet_len(const struct sw_opcode *opcode, uint32_t payload_len)
{
    return (size_t)opcode->header_len + payload_len + sw_packet_pad(payload_len) + SW_ICRC_BYTES;
}

#endif
