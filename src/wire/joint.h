/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several packets of one connection in one, among ourselves:
 *
 *   BTH | for each: length 2, reserved 2, its headers, payload and pad | ICRC of all
 *
 * Only the last of the packets that share a message of the kernel may be shorter (UDP_SEGMENT). So
 * short ones that follow long ones would need a message of their own, which costs each side more
 * than all that is in it. Joined, they are that last packet. So may a long one be with what follows
 * it, where the interface takes a packet that is longer than the path MTU asks for.
 *
 * The BTH is that of the first packet, with an opcode of those that IBTA leaves to manufacturers.
 * It leaves for peers only that have said to understand it (transport/piggyback.h). Each packet in
 * it is looked at as if it had come by itself, and has to prove itself.
 */
#ifndef SW_WIRE_JOINT_H
#define SW_WIRE_JOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/packet.h"

enum {
    SW_JOINT_OPCODE = 0xdf,
    SW_JOINT_EACH_BYTES = 4,                       /* in front of each packet */
    SW_JOINT_BYTES = SW_BTH_BYTES + SW_ICRC_BYTES, /* of one that is empty */
};

static inline bool sw_joint_is(const uint8_t *packet)
{
    return packet[0] == SW_JOINT_OPCODE;
}

/* Whether a packet with these headers goes where the joint one goes. */
bool sw_joint_is_for(const uint8_t *joint, const uint8_t *headers);
/* Writes the BTH, for packets that begin with one whose encoded headers are these. */
void sw_joint_begin(uint8_t *to, const uint8_t *headers);
/* Writes what stands in front of a packet of that length, pad included. */
void sw_joint_announce(uint8_t *to, uint32_t len_bytes);

/* Whether its packets fill it, are as long as packets are, and go where it goes. `len_bytes`, at
 * least SW_JOINT_BYTES, counts the ICRC. */
bool sw_joint_is_sound(const uint8_t *joint, uint32_t len_bytes);
/* The next packet of a sound one; *at is 0 at first. Its length counts four bytes behind it, where
 * the ICRC of a packet would be. False: there is none. */
bool sw_joint_next(const uint8_t *joint, uint32_t len_bytes, uint32_t *at, const uint8_t **packet,
                   uint32_t *packet_bytes);

#endif
