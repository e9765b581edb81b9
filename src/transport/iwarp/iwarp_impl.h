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
