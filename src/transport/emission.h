/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A packet that a machine wants sent: headers, and where its payload comes from. The link adds the
 * path (addresses, ports, TOS) and the ICRC.
 *
 * Or a run of packets: the payload goes on from packet to packet, each has payload_len bytes of it
 * and the headers of the one before, but with the next PSN and, where there is a RETH, the address
 * behind (sw_packet_step). An AckReq is meant for the last one alone.
 */
#ifndef SW_TRANSPORT_EMISSION_H
#define SW_TRANSPORT_EMISSION_H

#include "wire/packet.h"
#include "wire/psn.h"

/* As far as a machine keeps count of single packets: PSNs on their way at the requester, and
 * packets after a gap at the responder. A NAK can speak of all of them. */
#define SW_FLIGHT_PACKETS 2048u
#define SW_EMISSION_BYTES (SW_FLIGHT_PACKETS / 8)

/* In the seven reserved bits of the BTH that the ICRC covers: a sender of this understands
 * selective repeat. Others send zeros there and do not look. The lower bits are not looked at here:
 * they count how often the sender's queue pair was connected, round and round
 * (link/roce/qp/life.c). */
#define SW_SELECTIVE_MARK 0x50u
#define SW_SELECTIVE_LIFE 0x0fu

static inline uint8_t sw_selective_mark(bool offers, uint8_t life)
{
    return offers ? (uint8_t)(SW_SELECTIVE_MARK | (life & SW_SELECTIVE_LIFE)) : 0;
}

static inline bool sw_selective_is_marked(uint8_t reserved7)
{
    return (reserved7 & ~SW_SELECTIVE_LIFE) == SW_SELECTIVE_MARK;
}

enum sw_payload_source {
    SW_PAYLOAD_NONE,
    SW_PAYLOAD_REQUEST, /* bytes of the data of request `position`, from `offset` on */
    SW_PAYLOAD_MEMORY,  /* bytes [addr, addr+payload_len) of the responder's memory by `rkey` */
    SW_PAYLOAD_BYTES,   /* in `bytes` */
};

struct sw_emission {
    struct sw_packet packet; /* all headers and payload_len; payload is NULL */
    uint32_t count;          /* of packets: at least 1 */
    bool is_again;           /* was sent before */
    bool begins_message;     /* leaves in no message of the kernel with what was given before it */
    bool ends_deferred;      /* the last of packets that were deferred together (deferred.h) */
    uint32_t joint_bytes;    /* of the first of them: what all take if they are joined */
    enum sw_payload_source source;
    uint32_t position; /* of the request it belongs to, if a requester made it */
    uint32_t rkey;
    uint64_t offset;
    uint64_t addr;
    uint8_t bytes[SW_EMISSION_BYTES];
};

/* Takes the first packet off a run: for links that send them one by one. */
static inline void sw_emission_step(struct sw_emission *emission)
{
    struct sw_packet *packet = &emission->packet;
    emission->count--;
    emission->offset += packet->payload_len;
    packet->reth.addr += packet->payload_len;
    packet->bth.psn = sw_psn_add(packet->bth.psn, 1);
}

#endif
