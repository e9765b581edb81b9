/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/opcode.h"

#include <stddef.h>

/* The upper three bits of an opcode. */
enum { BASE_RC = 0x00, BASE_UC = 0x20, BASE_UD = 0x60, BASE_XRC = 0xa0, BASE_PIGGYBACK = 0xc0 };

#define LEN(headers, bit, len) ((headers) & (bit) ? (len) : 0)
#define HEADER_LEN(h)                                                                            \
    (SW_BTH_BYTES + LEN(h, SW_HEADER_XRCETH, SW_XRCETH_BYTES) +                                  \
     LEN(h, SW_HEADER_DETH, SW_DETH_BYTES) + LEN(h, SW_HEADER_FETH, SW_FETH_BYTES) +             \
     LEN(h, SW_HEADER_RETH, SW_RETH_BYTES) + LEN(h, SW_HEADER_ATOMIC, SW_ATOMIC_BYTES) +         \
     LEN(h, SW_HEADER_AETH, SW_AETH_BYTES) + LEN(h, SW_HEADER_ATOMIC_ACK, SW_ATOMIC_ACK_BYTES) + \
     LEN(h, SW_HEADER_IMM, SW_IMM_BYTES) + LEN(h, SW_HEADER_IETH, SW_IETH_BYTES) +               \
     LEN(h, SW_HEADER_CNP, SW_CNP_BYTES) + LEN(h, SW_HEADER_PIGGYBACK, SW_PIGGYBACK_BYTES))

enum { BARE = 0, LOADED = 1, ANSWER = 0, REQUEST = 1 };

#define ROW(number_, service_, name_, kind_, position_, headers_, payload_, request_) \
    [number_] = {                                                                     \
        .name = name_,                                                                \
        .headers = (headers_),                                                        \
        .number = (number_),                                                          \
        .service = SW_SERVICE_##service_,                                             \
        .kind = SW_PACKET_##kind_,                                                    \
        .position = SW_##position_,                                                   \
        .header_len = HEADER_LEN(headers_),                                           \
        .has_payload = (payload_),                                                    \
        .is_request = (request_),                                                     \
    }

/* A request of service S: `e` is the header that each of its requests has. */
#define ASK(S, n, text, kind, position, headers, payload) \
    ROW(BASE_##S + (n), S, #S " " text, kind, position, headers, payload, REQUEST)
#define REPLY(S, n, text, kind, position, headers, payload) \
    ROW(BASE_##S + (n), S, #S " " text, kind, position, headers, payload, ANSWER)

/* SEND and RDMA WRITE, which RC, UC and XRC have. */
#define MESSAGES(S, e)                                                                            \
    ASK(S, 0x00, "SEND First", SEND, FIRST, e, LOADED),                                           \
        ASK(S, 0x01, "SEND Middle", SEND, MIDDLE, e, LOADED),                                     \
        ASK(S, 0x02, "SEND Last", SEND, LAST, e, LOADED),                                         \
        ASK(S, 0x03, "SEND Last with Immediate", SEND, LAST, (e) | SW_HEADER_IMM, LOADED),        \
        ASK(S, 0x04, "SEND Only", SEND, ONLY, e, LOADED),                                         \
        ASK(S, 0x05, "SEND Only with Immediate", SEND, ONLY, (e) | SW_HEADER_IMM, LOADED),        \
        ASK(S, 0x06, "RDMA WRITE First", WRITE, FIRST, (e) | SW_HEADER_RETH, LOADED),             \
        ASK(S, 0x07, "RDMA WRITE Middle", WRITE, MIDDLE, e, LOADED),                              \
        ASK(S, 0x08, "RDMA WRITE Last", WRITE, LAST, e, LOADED),                                  \
        ASK(S, 0x09, "RDMA WRITE Last with Immediate", WRITE, LAST, (e) | SW_HEADER_IMM, LOADED), \
        ASK(S, 0x0a, "RDMA WRITE Only", WRITE, ONLY, (e) | SW_HEADER_RETH, LOADED),               \
        ASK(S, 0x0b, "RDMA WRITE Only with Immediate", WRITE, ONLY,                               \
            (e) | SW_HEADER_RETH | SW_HEADER_IMM, LOADED)

/* What only the reliable services have. */
#define RELIABLE(S, e)                                                                            \
    ASK(S, 0x0c, "RDMA READ Request", READ_REQUEST, ONLY, (e) | SW_HEADER_RETH, BARE),            \
        REPLY(S, 0x0d, "RDMA READ Response First", READ_RESPONSE, FIRST, SW_HEADER_AETH, LOADED), \
        REPLY(S, 0x0e, "RDMA READ Response Middle", READ_RESPONSE, MIDDLE, 0, LOADED),            \
        REPLY(S, 0x0f, "RDMA READ Response Last", READ_RESPONSE, LAST, SW_HEADER_AETH, LOADED),   \
        REPLY(S, 0x10, "RDMA READ Response Only", READ_RESPONSE, ONLY, SW_HEADER_AETH, LOADED),   \
        REPLY(S, 0x11, "Acknowledge", ACK, ONLY, SW_HEADER_AETH, BARE),                           \
        REPLY(S, 0x12, "ATOMIC Acknowledge", ATOMIC_ACK, ONLY,                                    \
              SW_HEADER_AETH | SW_HEADER_ATOMIC_ACK, BARE),                                       \
        ASK(S, 0x13, "CmpSwap", CMP_SWAP, ONLY, (e) | SW_HEADER_ATOMIC, BARE),                    \
        ASK(S, 0x14, "FetchAdd", FETCH_ADD, ONLY, (e) | SW_HEADER_ATOMIC, BARE),                  \
        ASK(S, 0x16, "SEND Last with Invalidate", SEND, LAST, (e) | SW_HEADER_IETH, LOADED),      \
        ASK(S, 0x17, "SEND Only with Invalidate", SEND, ONLY, (e) | SW_HEADER_IETH, LOADED),      \
        ASK(S, 0x1c, "FLUSH", FLUSH, ONLY, (e) | SW_HEADER_FETH | SW_HEADER_RETH, BARE),          \
        ASK(S, 0x1d, "ATOMIC WRITE", ATOMIC_WRITE, ONLY, (e) | SW_HEADER_RETH, LOADED)

static const struct sw_opcode opcodes[256] = {
    MESSAGES(RC, 0),
    RELIABLE(RC, 0),
    MESSAGES(UC, 0),
    ASK(UD, 0x04, "SEND Only", SEND, ONLY, SW_HEADER_DETH, LOADED),
    ASK(UD, 0x05, "SEND Only with Immediate", SEND, ONLY, SW_HEADER_DETH | SW_HEADER_IMM, LOADED),
    ROW(0x81, CNP, "CNP", CNP, ONLY, SW_HEADER_CNP, BARE, ANSWER),
    MESSAGES(XRC, SW_HEADER_XRCETH),
    RELIABLE(XRC, SW_HEADER_XRCETH),
    ROW(BASE_PIGGYBACK + 0x04, RC, "RC SEND Only with ACK", SEND, ONLY, SW_HEADER_PIGGYBACK, LOADED,
        REQUEST),
    ROW(BASE_PIGGYBACK + 0x05, RC, "RC SEND Only with Immediate and ACK", SEND, ONLY,
        SW_HEADER_IMM | SW_HEADER_PIGGYBACK, LOADED, REQUEST),
    ROW(BASE_PIGGYBACK + 0x17, RC, "RC SEND Only with Invalidate and ACK", SEND, ONLY,
        SW_HEADER_IETH | SW_HEADER_PIGGYBACK, LOADED, REQUEST),
};

const struct sw_opcode *sw_opcode_of(uint8_t number)
{
    return opcodes[number].name ? &opcodes[number] : NULL;
}

static int base_of(enum sw_service service)
{
    switch (service) {
    case SW_SERVICE_RC:
        return BASE_RC;
    case SW_SERVICE_UC:
        return BASE_UC;
    case SW_SERVICE_UD:
        return BASE_UD;
    case SW_SERVICE_XRC:
        return BASE_XRC;
    case SW_SERVICE_CNP:
        break;
    }
    return -1;
}

/* Within a service; indexed by position. */
static int opcode_offset_of(enum sw_packet_kind kind, enum sw_position position, uint16_t extra)
{
    static const uint8_t sends[] = {[SW_MIDDLE] = 1, [SW_FIRST] = 0, [SW_LAST] = 2, [SW_ONLY] = 4};
    static const uint8_t reads[] = {
        [SW_MIDDLE] = 0x0e, [SW_FIRST] = 0x0d, [SW_LAST] = 0x0f, [SW_ONLY] = 0x10};
    int with_imm = extra & SW_HEADER_IMM ? 1 : 0;
    switch (kind) {
    case SW_PACKET_SEND:
        if (extra & SW_HEADER_IETH)
            return position == SW_ONLY ? 0x17 : 0x16;
        return sends[position] + with_imm;
    case SW_PACKET_WRITE:
        return 0x06 + sends[position] + with_imm;
    case SW_PACKET_READ_REQUEST:
        return 0x0c;
    case SW_PACKET_READ_RESPONSE:
        return reads[position];
    case SW_PACKET_ACK:
        return 0x11;
    case SW_PACKET_ATOMIC_ACK:
        return 0x12;
    case SW_PACKET_CMP_SWAP:
        return 0x13;
    case SW_PACKET_FETCH_ADD:
        return 0x14;
    case SW_PACKET_FLUSH:
        return 0x1c;
    case SW_PACKET_ATOMIC_WRITE:
        return 0x1d;
    case SW_PACKET_CNP:
        break;
    }
    return -1;
}

const struct sw_opcode *sw_opcode_find(enum sw_service service, enum sw_packet_kind kind,
                                       enum sw_position position, uint16_t extra)
{
    if (service == SW_SERVICE_CNP)
        return kind == SW_PACKET_CNP ? &opcodes[0x81] : NULL;
    int offset = opcode_offset_of(kind, position, extra);
    int base = extra & SW_HEADER_PIGGYBACK ? BASE_PIGGYBACK : base_of(service);
    const struct sw_opcode *found = offset < 0 ? NULL : sw_opcode_of((uint8_t)(base + offset));
    /* An immediate on a First packet, say, would have led to a neighbour. */
    if (!found || found->kind != kind || found->position != position || found->service != service ||
        (found->headers & (SW_HEADER_IMM | SW_HEADER_IETH | SW_HEADER_PIGGYBACK)) != extra)
        return NULL;
    return found;
}
