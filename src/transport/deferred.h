/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that leave later than their PSN says: WRITE, SEND, WRITE, SEND, as a storage target
 * answers requests, leave as WRITE, WRITE, SEND, SEND.
 *
 * Only packets of one length share a message of the kernel; the last may be shorter. In order, each
 * SEND would end a message, and a message costs more than the packets in it. So a short packet
 * between two long ones of one length is deferred until the long ones are out. It has its PSN
 * already, and counts as on its way. The peer keeps the long packets behind it, as after a loss, so
 * only peers that speak selective repeat are sent such. Its time is behind that of the packets that
 * go before it, so their arrival is no proof that it is lost (flight.h).
 *
 * Its owner is a requester.
 */
#ifndef SW_TRANSPORT_DEFERRED_H
#define SW_TRANSPORT_DEFERRED_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/request.h"

enum {
    SW_DEFERRED_MAX = 62, /* 64 packets share a message at most (link/roce/port/tx.c) */
    /* Payload that shares a message. Were it two, the peer would have nothing to do meanwhile. */
    SW_DEFERRED_SPAN_BYTES = 60 << 10,
};

struct sw_deferred {
    bool is_refused;     /* the peer did not keep what came behind one: none is deferred any more */
    bool is_open;        /* nothing that was deferred has left since the last long packet */
    uint8_t kind, flags; /* of the packet that left last, if that was a whole request, ... */
    uint32_t len_bytes;  /* ... and its payload; */
    uint64_t burst_ns;   /* when it was given out: those of one burst leave together */
    uint32_t first, count;
    uint32_t positions[SW_DEFERRED_MAX]; /* of requests, by their number modulo this */
};

/* A request of one packet has been given out. */
static inline void sw_deferred_note(struct sw_deferred *d, const struct sw_request *request,
                                    uint64_t now_ns)
{
    d->is_open = true;
    d->burst_ns = now_ns;
    d->kind = request->kind;
    d->flags = request->flags;
    d->len_bytes = request->len_bytes;
}

/* Whether `request` leaves before those that wait: it is like the long packets that have left. */
bool sw_deferred_goes_on(const struct sw_deferred *d, const struct sw_request *request,
                         uint64_t now_ns);

/* Whether to defer `request`, one packet and nothing of it out, which `next` follows. */
bool sw_deferred_wants(const struct sw_deferred *d, const struct sw_request *request,
                       const struct sw_request *next, uint64_t now_ns);

/* There must be room: sw_deferred_wants(). */
void sw_deferred_push(struct sw_deferred *d, uint32_t position);
/* The position of the oldest; count must not be 0. */
uint32_t sw_deferred_pop(struct sw_deferred *d);

#endif
