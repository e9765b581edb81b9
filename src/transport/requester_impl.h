/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the requester share. */
#ifndef SW_TRANSPORT_REQUESTER_IMPL_H
#define SW_TRANSPORT_REQUESTER_IMPL_H

#include "transport/requester.h"

static inline struct sw_request *sw_requester_at(const struct sw_requester *r, uint32_t position)
{
    return &r->ring[position & r->mask];
}

/* The position of the request that a PSN on its way belongs to. */
uint32_t sw_requester_find(const struct sw_requester *r, uint32_t seq);

/* Looks for what is lost after something arrived out of order, or when it is overdue. */
void sw_requester_find_lost(struct sw_requester *r, uint64_t now_ns);

/* Makes the timer's floor `factor` times what was configured, if that is shorter than it is. */
void sw_requester_set_floor(struct sw_requester *r, uint32_t factor);

/* A request has failed, the one at `done`. */
void sw_requester_fail(struct sw_requester *r, enum sw_failure failure, uint8_t syndrome,
                       struct sw_progress *out);

#endif
