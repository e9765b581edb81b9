/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The READ requests (pieces of READs), atomics and FLUSHes that are not answered in full: as many
 * as the peer has responder resources for. A requester's, in the order of their PSNs.
 */
#ifndef SW_TRANSPORT_READ_TRACK_H
#define SW_TRANSPORT_READ_TRACK_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/seq.h"

enum { SW_READ_TRACK_MAX = 32 };

struct sw_read_span {
    uint32_t first, end;
};

struct sw_read_track {
    uint32_t head, count;
    struct sw_read_span spans[SW_READ_TRACK_MAX];
};

/* There must be room. */
static inline void sw_read_track_push(struct sw_read_track *t, uint32_t first, uint32_t count)
{
    uint32_t at = (t->head + t->count++) % SW_READ_TRACK_MAX;
    t->spans[at].first = first;
    t->spans[at].end = first + count;
}

/* All before `una` is settled. */
static inline void sw_read_track_settle(struct sw_read_track *t, uint32_t una)
{
    while (t->count && !sw_seq_is_before(una, t->spans[t->head].end)) {
        t->head = (t->head + 1) % SW_READ_TRACK_MAX;
        t->count--;
    }
}

/* The request that asked for this. */
static inline struct sw_read_span sw_read_track_span(const struct sw_read_track *t, uint32_t seq)
{
    for (uint32_t i = 0; i < t->count; i++) {
        struct sw_read_span span = t->spans[(t->head + i) % SW_READ_TRACK_MAX];
        if (sw_seq_is_before(seq, span.end))
            return span;
    }
    return (struct sw_read_span){.first = seq, .end = seq + 1};
}

#endif
