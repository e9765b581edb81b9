/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A datagram of RoCE devices that TCP carries (docs/tcp.md): one message of RDMAP, a SEND in one
 * segment, whose payload is
 *
 *   u8 traffic class | u8 hop limit | u16 UDP source port | a RoCEv2 packet of UD, with its ICRC
 *
 * The addresses of the packet's IP header are those of the TCP connection, so nobody can say
 * others.
 */
#ifndef SW_WIRE_IWARP_CARRIED_H
#define SW_WIRE_IWARP_CARRIED_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/iwarp/ddp.h"
#include "wire/iwarp/fpdu.h"

enum {
    SW_CARRIED_BYTES = 4, /* before the packet */
    SW_CARRIED_HEAD_BYTES = SW_FPDU_LENGTH_BYTES + SW_DDP_UNTAGGED_BYTES + SW_CARRIED_BYTES,
    SW_CARRIED_PACKET_MAX = 4224, /* 4 KiB with all headers that a datagram may have */
    SW_CARRIED_MAX = SW_CARRIED_HEAD_BYTES + SW_CARRIED_PACKET_MAX + SW_FPDU_TRAILER_MAX,
};

struct sw_carried {
    uint32_t msn; /* counts the messages of a connection, from 1 on */
    uint8_t traffic_class;
    uint8_t hop_limit; /* 0: not known */
    uint16_t source_port;
    uint32_t len_bytes; /* of the packet */
    const uint8_t *packet;
};

/* Writes all of an FPDU that stands before the packet. The length is SW_CARRIED_PACKET_MAX at
 * most. */
void sw_carried_encode(const struct sw_carried *carried, uint8_t head[SW_CARRIED_HEAD_BYTES]);
/* The length of the ULPDU, for the FPDU's trailer. */
static inline uint32_t sw_carried_ulpdu_len(const struct sw_carried *carried)
{
    return SW_DDP_UNTAGGED_BYTES + SW_CARRIED_BYTES + carried->len_bytes;
}

/* Takes a ULPDU apart. False: it is no datagram, or one of a connected queue pair. The packet stays
 * where it lies; nothing of it was looked at but its kind and length. */
bool sw_carried_decode(const uint8_t *ulpdu, uint32_t len, struct sw_carried *out);

#endif
