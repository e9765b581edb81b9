/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the responder share: responder.c, respond.c, demand.c and unreliable.c. */
#ifndef SW_TRANSPORT_RESPONDER_IMPL_H
#define SW_TRANSPORT_RESPONDER_IMPL_H

#include "transport/responder.h"

/* responder.c: a NAK that ends the connection. */
void sw_responder_refuse(struct sw_responder *r, uint8_t syndrome);

/* demand.c */
enum sw_demand_kind sw_demand_kind_of(enum sw_packet_kind kind);
/* Says what the packet asks for; whether it may is for sw_demand_is_legal(). */
void sw_demand_describe(const struct sw_responder *r, const struct sw_packet *packet, uint32_t seq,
                        struct sw_demand *out);
/* Whether the packet is in its place, and as long as it has to be: 9.7.4.1.2 ff. */
bool sw_demand_is_legal(const struct sw_responder *r, const struct sw_demand *d);
/* Whether it has a response of its own. */
static inline bool sw_demand_is_answered(enum sw_demand_kind kind)
{
    return kind != SW_DEMAND_SEND && kind != SW_DEMAND_WRITE;
}

/* unreliable.c */
/* A message of which something is missing is lost; the next one begins wherever it begins:
 * 9.8.2.2.1. True: *out is to be carried out. */
bool sw_unreliable_admit(struct sw_responder *r, const struct sw_packet *packet, uint32_t seq,
                         uint64_t now_ns, struct sw_demand *out);
void sw_unreliable_conclude(struct sw_responder *r, const struct sw_demand *demand, bool lost);
/* The next of what is kept, if it is expected or what is missing before it is given up. */
bool sw_unreliable_early(struct sw_responder *r, struct sw_packet *out);

/* respond.c */
/* Queues the response to a READ, atomic, ATOMIC WRITE or FLUSH; there must be room. */
void sw_responder_answer(struct sw_responder *r, const struct sw_demand *demand, uint64_t original);

/* The same for a duplicate that may not be executed again: a NAK, which ends nothing here. The peer
 * takes it if it still waits for the answer, and ignores it otherwise. */
void sw_responder_refuse_again(struct sw_responder *r, const struct sw_demand *demand,
                               uint8_t syndrome);

/* The request that a duplicate repeats, or a part of it; NULL: none that is known. */
const struct sw_done *sw_responder_done(const struct sw_responder *r,
                                        const struct sw_demand *demand);

/* Whether the response packet of this PSN waits to be sent. */
bool sw_responder_is_queued(const struct sw_responder *r, uint32_t seq);

#endif
