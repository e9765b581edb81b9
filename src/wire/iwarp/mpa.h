/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The two frames by which MPA starts: a request of the side that connected, and its reply. RFC 5044
 * s7.1; the enhanced ones (revision 2) RFC 6581 s9.
 *
 *   key 16 | u8 flags | u8 revision | u16 length | private data
 *
 * In an enhanced frame the first four bytes of the private data, which the length counts, say how
 * many READs each side takes and makes, and how the initiator tells that it is ready (RTR).
 */
#ifndef SW_WIRE_IWARP_MPA_H
#define SW_WIRE_IWARP_MPA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SW_MPA_KEY_BYTES = 16,
    SW_MPA_HEADER_BYTES = SW_MPA_KEY_BYTES + 4,
    SW_MPA_NEGOTIATION_BYTES = 4,
    SW_MPA_PRIVATE_MAX = 512, /* with the negotiation */
    SW_MPA_FRAME_MAX = SW_MPA_HEADER_BYTES + SW_MPA_PRIVATE_MAX,
    SW_MPA_DEPTH_MAX = 0x3ffe,
    SW_MPA_DEPTH_OPEN = 0x3fff, /* of IRD and ORD: not negotiated */
};

enum sw_mpa_flag {
    SW_MPA_MARKERS = 0x80, /* the sender wants to receive markers */
    SW_MPA_CRC = 0x40,
    SW_MPA_REJECT = 0x20,   /* of a reply */
    SW_MPA_ENHANCED = 0x10, /* of revision 2 */
    SW_MPA_LARGE = 0x08,    /* siw's own: FPDUs may be longer than a TCP segment */
};

/* How an initiator tells that it is ready: by an empty message. A set, as it is negotiated. */
enum sw_mpa_rtr { SW_MPA_RTR_SEND = 1, SW_MPA_RTR_WRITE = 2, SW_MPA_RTR_READ = 4 };

struct sw_mpa_frame {
    bool is_reply;
    uint8_t flags; /* as they lie there: unknown ones are ignored */
    uint8_t revision;
    /* Where sw_mpa_is_enhanced(); otherwise 0. */
    bool peer_to_peer;
    uint8_t rtr; /* enum sw_mpa_rtr */
    uint16_t ird, ord;
    uint16_t private_len; /* without the negotiation */
    const uint8_t *private_data;
};

static inline bool sw_mpa_is_enhanced(const struct sw_mpa_frame *frame)
{
    return frame->revision >= 2 && (frame->flags & SW_MPA_ENHANCED);
}

enum sw_mpa_fault {
    SW_MPA_FAULT_NONE,
    SW_MPA_FAULT_SHORT, /* none so far: more bytes have to come */
    SW_MPA_FAULT_KEY,
    SW_MPA_FAULT_REVISION, /* neither 1 nor 2 */
    SW_MPA_FAULT_LENGTH,   /* more private data than there may be, or too little for the flags */
};

/* Whether the first bytes of a stream are a request, or a reply. A fault is told as soon as it can
 * be seen. */
enum sw_mpa_fault sw_mpa_check(const uint8_t *bytes, size_t len, bool is_reply);

/* What sw_mpa_check() found right. Returns the length of the frame; the private data stays where it
 * lies. */
size_t sw_mpa_decode(const uint8_t *bytes, struct sw_mpa_frame *out);

/* Writes a frame; returns its length. `to` has SW_MPA_FRAME_MAX bytes, the private data fits. */
size_t sw_mpa_encode(const struct sw_mpa_frame *frame, uint8_t *to);

#endif
