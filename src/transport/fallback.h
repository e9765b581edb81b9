/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a connection whose packets find no answer is carried by TCP instead (docs/tcp.md). Either
 * end decides for itself, by one rule: it moves only if it has taken no packet of its peer in this
 * connection, and takes none from then on. So whatever becomes of the call, no request is executed
 * twice: what an end executes came to it by packets alone, or by TCP alone.
 *
 *   BY_PACKETS --unanswered or known--> CALLING --the request has left--> ASKED --taken--> MOVED
 *
 * While a request is out no packet is taken, since its answer may move both ends. A call that was
 * not taken is made again, and packets are taken meanwhile: the first of them ends it for good.
 * Without clock or I/O, like the machines beside it.
 */
#ifndef SW_TRANSPORT_FALLBACK_H
#define SW_TRANSPORT_FALLBACK_H

#include <stdbool.h>
#include <stdint.h>

enum sw_fallback_state {
    SW_FALLBACK_BY_PACKETS,
    SW_FALLBACK_CALLING, /* the peer is called, and is to be called again */
    SW_FALLBACK_ASKED,   /* the peer's host has taken a TCP connection, and its request is out */
    SW_FALLBACK_MOVED,
};

enum sw_fallback_event {
    SW_FALLBACK_UNANSWERED, /* the retransmission timer has run out */
    SW_FALLBACK_KNOWN,      /* other connections to that host were found to need TCP, lately */
    SW_FALLBACK_PACKET,     /* one has come that is the peer's */
    SW_FALLBACK_REQUEST,    /* of the own call: it leaves */
    SW_FALLBACK_MISSED,     /* the own call was not taken */
    SW_FALLBACK_TAKEN,      /* it was */
    SW_FALLBACK_CALLED,     /* by the peer */
};

enum sw_fallback_step {
    SW_FALLBACK_NOTHING,
    SW_FALLBACK_CALL,   /* begin to call the peer */
    SW_FALLBACK_MOVE,   /* TCP carries it from here on; an own call is given up */
    SW_FALLBACK_REFUSE, /* the packet, or the call that came or was answered */
};

struct sw_fallback { /* zeroed: a connection begins */
    enum sw_fallback_state state;
    bool is_heard;     /* a packet of the peer was taken: nothing will change any more */
    bool is_lower;     /* of two calls that cross, this end's counts */
    bool has_missed;   /* answers, for so long that it calls, or would: UDP does not pass */
    uint32_t timeouts; /* since the connection began, with nothing heard */
};

/* `missed_ns`: UNANSWERED: for how long an answer has been missed. */
enum sw_fallback_step sw_fallback_take(struct sw_fallback *f, enum sw_fallback_event event,
                                       uint64_t missed_ns);

#endif
