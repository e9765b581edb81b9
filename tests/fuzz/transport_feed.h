/* SPDX-License-Identifier: BSD-2-Clause */
/* How the fuzz targets of transport/ read an input: a list of steps, and packets near the truth. */
#ifndef SW_TESTS_FUZZ_TRANSPORT_FEED_H
#define SW_TESTS_FUZZ_TRANSPORT_FEED_H

#include "transport/emission.h"
#include "transport/seq.h"

struct feed {
    const uint8_t *at;
    size_t left;
};

#define feed_needs(condition) \
    do {                      \
        if (!(condition))     \
            __builtin_trap(); \
    } while (0)

/* Zeros when there are no more. */
static inline uint8_t feed_u8(struct feed *feed)
{
    if (feed->left == 0)
        return 0;
    feed->left--;
    return *feed->at++;
}

static inline uint16_t feed_u16(struct feed *feed)
{
    uint8_t low = feed_u8(feed);
    return (uint16_t)(low | feed_u8(feed) << 8);
}

/* A packet of this opcode, whose PSN is mostly near `seq`; its payload is in static memory. */
static inline void feed_packet(struct feed *feed, uint8_t opcode, uint32_t seq,
                               struct sw_packet *out)
{
    static const uint8_t lens[] = {0, 8, 4, 255};
    static uint8_t payload[4096];
    uint8_t how = feed_u8(feed);
    int32_t off = how < 240 ? (int8_t)feed_u8(feed) : feed_u16(feed) * 256;
    *out = (struct sw_packet){
        .opcode = sw_opcode_of(opcode),
        .bth = {.opcode = opcode,
                .psn = sw_seq_psn(seq + (uint32_t)off),
                .ack_req = how & 1,
                .reserved7 = how & 2 ? SW_SELECTIVE_MARK : 0},
        .aeth = {.syndrome = how & 4 ? 0x1f : feed_u8(feed)},
        .payload = payload,
        .payload_len = how & 8    ? 256
                       : how & 16 ? feed_u16(feed) % 4097
                                  : lens[how >> 5 & 3],
    };
    if (out->opcode && !out->opcode->has_payload)
        out->payload_len = 0;
    if (how & 64) /* a few bytes to be a bitmap */
        for (int i = 0; i < 8; i++)
            payload[i] = feed_u8(feed);
    out->reth.addr = 0x1000;
    out->reth.len_bytes = how & 128 ? feed_u16(feed) : out->payload_len;
}

#endif
