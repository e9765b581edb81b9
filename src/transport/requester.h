/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester of a reliable (RC, XRC INI) or unreliable (UC) connection: turns work requests into
 * packets and answers into completions. A machine without clock, I/O, lock or memory of its own:
 * all is an argument, and its caller owns it. IBTA Vol1 9.7 (RC), 9.8.2 (UC), A14 (XRC), A19.
 *
 *   done <= sent <= tail: requests [done, sent) are on their way, the one at `sent` perhaps in
 * part.
 *
 * Its user calls post() for each request; then next() as long as it returns true and there is room
 * to send; receive() for each ACK, READ response and atomic ACK; tick() not before due_ns(). The
 * results of receive() and tick() are in struct sw_progress: bytes to place first, then what is
 * complete. Where due_ns() has passed and tick() has been called, next() may have something to
 * send.
 *
 * A request on an unreliable connection is complete once its last packet is out: look at done()
 * after next(), when the packets have been handed over.
 */
#ifndef SW_TRANSPORT_REQUESTER_H
#define SW_TRANSPORT_REQUESTER_H

#include "transport/congestion.h"
#include "transport/deferred.h"
#include "transport/emission.h"
#include "transport/flight.h"
#include "transport/read_track.h"
#include "transport/request.h"
#include "transport/retry.h"

struct sw_requester_config {
    uint32_t qpn, dest_qpn, first_psn;
    uint32_t mtu_bytes; /* 256, 512, 1024, 2048 or 4096 */
    uint16_t pkey;
    uint8_t service;              /* enum sw_service: RC, UC, XRC */
    uint8_t timeout;              /* 0: for ever; else 4.096 us * 2^timeout */
    uint8_t retry_cnt, rnr_retry; /* rnr_retry 7: for ever */
    uint64_t patience_min_ns;     /* `timeout` x (`retry_cnt` + 1) counts as this at least */
    uint8_t max_rd_atomic;        /* READs, atomics, FLUSHes outstanding, 1..SW_READ_TRACK_MAX */
    bool offer_selective;         /* tell the peer that selective repeat is understood here */
    uint8_t life;                 /* goes with that offer: SW_SELECTIVE_LIFE */
    uint64_t timer_floor_ns;      /* the unit of the timer's floors; 0: 1 ms */
    uint64_t rate_max, slack_ns;  /* struct sw_congestion_config; 0: defaults */
};

/* Why a request failed. The user maps a NAK by its AETH syndrome (device/rules/target.c). */
enum sw_failure {
    SW_FAILURE_NONE,
    SW_FAILURE_NAK,
    SW_FAILURE_RETRY,
    SW_FAILURE_RNR_RETRY,
    SW_FAILURE_BAD_RESPONSE,
};

struct sw_progress {
    /* Bytes of a READ response to be stored in the local memory of the request at place_position,
     * before anything is completed. An atomic's original value: 8 bytes, in `value`, host order;
     * place_bytes is NULL then. */
    bool places;
    uint32_t place_position;
    uint64_t place_offset;
    const uint8_t *place_bytes;
    uint32_t place_len;
    uint64_t value;
    uint32_t done;           /* all requests before this position are complete */
    enum sw_failure failure; /* of the request at `done`; the machine is dead until init() */
    uint8_t syndrome;        /* SW_FAILURE_NAK: AETH syndrome */
};

/* What a program wants to know of a QP under loss. */
struct sw_requester_counts {
    uint64_t packets, resent, timeouts, probes, naks, gaps, rnr_naks, stale; /* gaps: of the NAKs */
    uint64_t deferred; /* packets that left behind later ones, on purpose */
};

struct sw_requester {
    struct sw_requester_config config;
    struct sw_request *ring;
    uint32_t mask;
    uint32_t done, sent, tail;
    uint32_t tail_seq; /* of the next request posted */
    uint32_t settled;  /* all that needs no answer of its own is acknowledged before it */
    uint32_t unasked;  /* packets since the last AckReq */
    uint8_t mtu_shift;
    bool paused, dead, peer_selective;
    bool suspects;     /* the timer ran out, and what came since has not told yet whether rightly */
    bool reorders;     /* the path has been seen to */
    uint32_t patience; /* ticks a packet may be overdue, once the path reorders */
    /* What the peer has refused; it holds once everything before `refused_seq` is settled. */
    enum sw_failure refused;
    uint8_t refused_syndrome;
    uint32_t refused_seq;
    uint64_t rnr_until_ns; /* 0: not told to wait */
    uint64_t overdue_ns;   /* when a gap is to be looked at again; SW_RETRY_NEVER */
    uint64_t paced_ns;     /* until when pacing has kept next() back; SW_RETRY_NEVER */
    struct sw_read_track reads;
    struct sw_retry retry;
    uint64_t heard_ns; /* something that was sent then, once, has arrived; 0: nothing yet */
    struct sw_congestion congestion;
    struct sw_requester_counts counts;
    struct sw_deferred deferred;
    struct sw_flight flight;
};

/* `ring` holds `entries` requests, a power of two, and stays the user's. Positions start at 0. */
void sw_requester_init(struct sw_requester *r, const struct sw_requester_config *config,
                       struct sw_request *ring, uint32_t entries);

/* Appends a request (copies it). false: the ring is full. */
bool sw_requester_post(struct sw_requester *r, const struct sw_request *request);

/* The same without the copy: the room of the next request, NULL if the ring is full; and appends
 * what has been written to it. */
struct sw_request *sw_requester_room(struct sw_requester *r);
void sw_requester_post_room(struct sw_requester *r);

/* The next packet that may go now, in the order of the protocol, or a run of up to `most` of them:
 * what is sent again comes first. false: none may (nothing to do, a fence, the initiator depth, RNR
 * wait, the window or pacing). */
bool sw_requester_next_run(struct sw_requester *r, uint64_t now_ns, uint32_t most,
                           struct sw_emission *out);

static inline bool sw_requester_next(struct sw_requester *r, uint64_t now_ns,
                                     struct sw_emission *out)
{
    return sw_requester_next_run(r, now_ns, 1, out);
}

/* Whether something waits to be sent, or sent again: as soon as it may be. */
static inline bool sw_requester_has_unsent(const struct sw_requester *r)
{
    return r->sent != r->tail || r->flight.lost_count || r->deferred.count;
}

static inline bool sw_requester_has_unacked(const struct sw_requester *r)
{
    return r->flight.una != r->flight.next;
}

/* When tick() or next() will have something to do by the passing of time alone; UINT64_MAX: never.
 */
uint64_t sw_requester_due_ns(const struct sw_requester *r);
void sw_requester_tick(struct sw_requester *r, uint64_t now_ns, struct sw_progress *out);
/* Whether something of this PSN is on its way, which an answer may be to. */
bool sw_requester_awaits(const struct sw_requester *r, uint32_t psn);
void sw_requester_receive(struct sw_requester *r, const struct sw_packet *packet, uint64_t now_ns,
                          struct sw_progress *out);

/* A congestion notification came for this QP. */
void sw_requester_cnp(struct sw_requester *r, uint64_t now_ns);

static inline uint32_t sw_requester_done(const struct sw_requester *r)
{
    return r->done;
}

/* Whether it is the turn of a SW_REQUEST_LOCAL, at position done(): all before it is complete,
 * nothing after it has begun. The user does it and says so. */
bool sw_requester_is_local(const struct sw_requester *r);
void sw_requester_local_done(struct sw_requester *r);

/* Nothing is on its way and nothing waits. */
static inline bool sw_requester_is_idle(const struct sw_requester *r)
{
    return r->done == r->tail;
}

/* UC, after a request failed here (SQE): all that was posted and is not complete is given up. */
void sw_requester_abandon(struct sw_requester *r);

/* SQD: stops taking up new requests, lets begun ones finish; and goes on. */
void sw_requester_pause(struct sw_requester *r, bool paused);

/* Whether, while paused, everything begun is complete. */
bool sw_requester_is_drained(const struct sw_requester *r);

#endif
