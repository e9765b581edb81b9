/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the machine share. */
#ifndef SW_TRANSPORT_IWARP_IWARP_IMPL_H
#define SW_TRANSPORT_IWARP_IWARP_IMPL_H

#include "transport/iwarp/iwarp.h"

/* Ends the connection by a Terminate about this ULPDU, or about none. */
void sw_iwarp_refuse_ulpdu(struct sw_iwarp *w, uint16_t cause, const uint8_t *ulpdu, uint32_t len);

/* Goes over the requests that are complete. */
void sw_iwarp_advance(struct sw_iwarp *w);

/* For reading memory: of a READ, at once or when its response leaves, and of an atomic. */
uint16_t sw_iwarp_read_cause(enum sw_access_fault why);

/* send.c: an untagged message that is one segment, its body written where body_at() says. */
uint8_t *sw_iwarp_body_at(struct sw_iwarp_emission *out);
void sw_iwarp_write_single(struct sw_iwarp *w, enum sw_rdmap_kind kind, uint32_t body_len,
                           struct sw_iwarp_emission *out);

/* send.c: the last message. */
void sw_iwarp_emit_terminate(struct sw_iwarp *w, struct sw_iwarp_emission *out);

/* paired.c: of a connection between queue pairs. Whether the peer has said that it has all of a
 * request. */
bool sw_iwarp_paired_is_taken(const struct sw_iwarp *w, const struct sw_request *request);
/* Between messages: goes back to the request that the peer had no receive for. */
void sw_iwarp_paired_rewind(struct sw_iwarp *w);
/* The note that is due, if any. */
bool sw_iwarp_paired_say(struct sw_iwarp *w, struct sw_iwarp_emission *out);
/* Says the immediate data of the SEND that comes next. */
void sw_iwarp_paired_announce(struct sw_iwarp *w, const struct sw_request *request,
                              struct sw_iwarp_emission *out);
/* A note but the immediate data of a WRITE. False: it cannot be. */
bool sw_iwarp_paired_take(struct sw_iwarp *w, const uint8_t *body);
bool sw_iwarp_paired_is_unit(const struct sw_ddp_segment *segment);
/* Whether the request at `sent` has to wait. */
bool sw_iwarp_paired_holds(const struct sw_iwarp *w);
/* The segment that was admitted is done. */
void sw_iwarp_paired_count(struct sw_iwarp *w);
/* There is no receive for it. */
void sw_iwarp_paired_put_off(struct sw_iwarp *w);

static inline struct sw_request *sw_iwarp_request_at(const struct sw_iwarp *w, uint32_t position)
{
    return &w->ring[position & w->mask];
}

static inline struct sw_iwarp_read *sw_iwarp_oldest_read(struct sw_iwarp *w)
{
    return &w->reads[w->read_head];
}

static inline struct sw_iwarp_answer *sw_iwarp_oldest_answer(struct sw_iwarp *w)
{
    return &w->answers[w->answer_head];
}

#endif
