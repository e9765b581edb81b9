/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What each BTH opcode is: one table that the codec, the machines and the counters read. IBTA Vol1
 * 9.2 (table 38), A14 (XRC), A17 (RoCEv2, CNP), A19 (FLUSH, ATOMIC WRITE). Among the opcodes left
 * to manufacturers (0xc0 to 0xff) it has a few of our own, for peers that understand them
 * (transport/piggyback.h). A joint packet (wire/joint.h) is taken apart before it is decoded.
 * Reliable datagrams are not in it: their opcodes are unknown.
 */
#ifndef SW_WIRE_OPCODE_H
#define SW_WIRE_OPCODE_H

#include <stdbool.h>
#include <stdint.h>

enum sw_service { SW_SERVICE_RC, SW_SERVICE_UC, SW_SERVICE_UD, SW_SERVICE_XRC, SW_SERVICE_CNP };

enum sw_packet_kind {
    SW_PACKET_SEND, /* with invalidate: has SW_HEADER_IETH */
    SW_PACKET_WRITE,
    SW_PACKET_READ_REQUEST,
    SW_PACKET_READ_RESPONSE, /* also the answer to FLUSH and ATOMIC WRITE */
    SW_PACKET_ACK,           /* and NAK: AETH tells */
    SW_PACKET_ATOMIC_ACK,
    SW_PACKET_CMP_SWAP,
    SW_PACKET_FETCH_ADD,
    SW_PACKET_FLUSH,
    SW_PACKET_ATOMIC_WRITE,
    SW_PACKET_CNP, /* congestion notification */
};

/* Two bits: begins a message, ends one. */
enum sw_position { SW_MIDDLE = 0, SW_FIRST = 1, SW_LAST = 2, SW_ONLY = SW_FIRST | SW_LAST };

/* The headers behind the BTH; they follow in the order of these bits. */
enum sw_header {
    SW_HEADER_XRCETH = 1 << 0,
    SW_HEADER_DETH = 1 << 1,
    SW_HEADER_FETH = 1 << 2,
    SW_HEADER_RETH = 1 << 3,
    SW_HEADER_ATOMIC = 1 << 4,
    SW_HEADER_AETH = 1 << 5,
    SW_HEADER_ATOMIC_ACK = 1 << 6,
    SW_HEADER_IMM = 1 << 7,
    SW_HEADER_IETH = 1 << 8,
    SW_HEADER_CNP = 1 << 9,        /* 16 reserved bytes */
    SW_HEADER_PIGGYBACK = 1 << 10, /* an ACK of the other direction: AETH, and its PSN */
};

enum sw_header_len {
    SW_BTH_BYTES = 12,
    SW_XRCETH_BYTES = 4,
    SW_DETH_BYTES = 8,
    SW_FETH_BYTES = 4,
    SW_RETH_BYTES = 16,
    SW_ATOMIC_BYTES = 28,
    SW_AETH_BYTES = 4,
    SW_ATOMIC_ACK_BYTES = 8,
    SW_IMM_BYTES = 4,
    SW_IETH_BYTES = 4,
    SW_CNP_BYTES = 16,
    SW_PIGGYBACK_BYTES = 8,
    SW_HEADERS_MAX = 48, /* no packet has more: XRC CmpSwap has 44 */
};

struct sw_opcode {
    const char *name;
    uint16_t headers;   /* enum sw_header */
    uint8_t number;     /* of the BTH */
    uint8_t service;    /* enum sw_service */
    uint8_t kind;       /* enum sw_packet_kind */
    uint8_t position;   /* enum sw_position */
    uint8_t header_len; /* BTH and all that follow */
    bool has_payload;   /* may have some; without it none, nor pad */
    bool is_request;    /* travels to a responder */
};

/* NULL: there is no such opcode. */
const struct sw_opcode *sw_opcode_of(uint8_t number);

/* The opcode for a packet to be made. `extra`: SW_HEADER_IMM or SW_HEADER_IETH where it is to carry
 * one, and SW_HEADER_PIGGYBACK where it is to carry that, otherwise 0. Kinds that are one packet
 * are SW_ONLY. NULL: there is none. */
const struct sw_opcode *sw_opcode_find(enum sw_service service, enum sw_packet_kind kind,
                                       enum sw_position position, uint16_t extra);

#endif
