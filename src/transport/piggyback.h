/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ACKs in requests. A program that answers each message at once owes the peer an ACK when it posts
 * its answer. As a packet of its own that ACK costs both kernels as much as the answer. Ahead of a
 * longer answer it makes that late. Behind it, it is late itself, and programs count on what they
 * have an answer to as done. So it goes in the answer: a SEND of one packet has the AETH and the
 * PSN of the ACK behind its other headers.
 *
 * IBTA knows no such packet. It has one of the opcodes that are left to manufacturers, and leaves
 * for peers only that have said to understand it. They say so in the reserved bits beside FECN and
 * BECN, and to peers only that have shown to be Sidewire by the mark of selective repeat
 * (emission.h). The ICRC does not cover these bits: where a router clears them, ACKs are packets
 * again. A peer that says so understands joint packets, too (wire/joint.h).
 */
#ifndef SW_TRANSPORT_PIGGYBACK_H
#define SW_TRANSPORT_PIGGYBACK_H

#include <stdbool.h>
#include <stdint.h>

struct sw_packet;
struct sw_responder;

#define SW_PIGGYBACK_MARK 0x2bu /* in the six reserved bits of BTH byte 4 */

/* What goes there, of a packet to a peer that speaks selective repeat or does not. */
static inline uint8_t sw_piggyback_mark(bool is_selective)
{
    return is_selective ? SW_PIGGYBACK_MARK : 0;
}

/* Moves the ACK that the responder has to say into the headers of a request to the same peer.
 * False: there is none, or something else is to be said; the peer does not understand it; or the
 * packet is no SEND of one packet, or too long. */
bool sw_piggyback_load(struct sw_responder *responder, struct sw_packet *request);
/* The ACK that came in a request, as the packet it would have been. False: it carries none. */
bool sw_piggyback_unload(const struct sw_packet *request, struct sw_packet *ack);

#endif
