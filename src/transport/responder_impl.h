/* SPDX-License-Identifier: BSD-2-Clause */
/* What the two files of the responder share. */
#ifndef SW_TRANSPORT_RESPONDER_IMPL_H
#define SW_TRANSPORT_RESPONDER_IMPL_H

#include "transport/responder.h"

/* A NAK that ends the connection. */
void sw_responder_refuse(struct sw_responder *r, uint8_t syndrome);

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
