/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs: packets that follow each other so closely that what was found out of the first one holds
 * for all. Middles of one message, or messages of one packet each that write to addresses one
 * behind the other; over the reliable services.
 */
#ifndef SW_WIRE_RUN_H
#define SW_WIRE_RUN_H

#include "wire/packet.h"

struct sw_packet_run {
    struct sw_packet first;
    uint32_t count;        /* 1: any packet */
    uint32_t stride_bytes; /* from a packet's bytes to the next one's */
    bool ack_req;          /* of the last one; those before it do not ask */
};

/* SEND Middle, WRITE Middle, and WRITE Only, of RC or XRC. */
bool sw_opcode_makes_runs(const struct sw_opcode *opcode);

/* Whether a datagram continues the run that another ends, from the BTH to the ICRC, both `len`
 * bytes: SEND Middle, WRITE Middle, or WRITE Only of one byte and more, of RC or XRC, which differs
 * in nothing but the payload, the next PSN and address, and AckReq. Neither need be a packet. */
bool sw_packet_follows(const uint8_t *previous, const uint8_t *next, size_t len);

/* Leaves out the first `count` packets. */
void sw_packet_run_skip(struct sw_packet_run *run, uint32_t count);

#endif
