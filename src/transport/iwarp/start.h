/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How an iWARP connection starts: the request of the side that connected, the reply, and, between
 * peers (RFC 6581), the empty message by which the initiator says that it is ready. A machine
 * without clock, I/O, lock or memory of its own. RFC 5044 s7, RFC 6581.
 *
 * The initiator sends what init() wrote, gives take() what comes, and looks at the state. The
 * responder does the same from REQUESTED on: it accepts or rejects, and sends what that wrote.
 *
 *   initiator: ASKED -> OPEN, REJECTED, OLDER (connect again with revision 1), REFUSED, FAILED
 *   responder: AWAITED -> REQUESTED -> ACCEPTED (until the first message comes) -> OPEN
 */
#ifndef SW_TRANSPORT_IWARP_START_H
#define SW_TRANSPORT_IWARP_START_H

#include "wire/iwarp/mpa.h"

#define SW_IWARP_REPLY_NS 10000000000ull  /* as long as siw waits for a reply */
#define SW_IWARP_REQUEST_NS 5000000000ull /* and for a request */

enum sw_iwarp_start_state {
    SW_IWARP_ASKED,     /* initiator: the reply has not come */
    SW_IWARP_AWAITED,   /* responder: the request has not come */
    SW_IWARP_REQUESTED, /* the request has come: accept() or reject() */
    SW_IWARP_ACCEPTED,  /* the reply is out; nothing may be sent before the first message came */
    SW_IWARP_OPEN,
    SW_IWARP_REJECTED, /* by the peer, or by us */
    SW_IWARP_OLDER,    /* the peer knows revision 1 alone: on a new connection init() as that */
    SW_IWARP_REFUSED,  /* what the peer replied does not do: `cause` goes out as a Terminate */
    SW_IWARP_FAILED,   /* `failure` */
};

enum sw_iwarp_start_failure {
    SW_IWARP_FAILURE_NONE,
    SW_IWARP_FAILURE_MALFORMED, /* no frame of MPA, or bytes where none may be */
    SW_IWARP_FAILURE_MARKERS,   /* the peer wants markers */
    SW_IWARP_FAILURE_TIMEOUT,
    SW_IWARP_FAILURE_CLOSED, /* the peer closed or reset before it had answered */
};

struct sw_iwarp_start_config {
    uint8_t revision;     /* initiator: 2, or 1 for an older peer; responder: the newest it takes */
    bool wants_crc;       /* either side's wish counts */
    bool wants_large;     /* FPDUs may be longer than TCP's segments: siw's flag */
    bool is_peer_to_peer; /* initiator: the responder may send first */
    uint8_t rtr;          /* enum sw_mpa_rtr: offered, or taken by the responder */
    uint16_t ird, ord;    /* READs taken and made, at most SW_MPA_DEPTH_MAX */
    uint16_t ord_least;   /* initiator: with fewer the connection is no use */
    uint16_t private_len; /* at most SW_MPA_PRIVATE_MAX, less 4 with revision 2 */
    const uint8_t *private_data;
};

/* What both sides hold by when the machine is OPEN. */
struct sw_iwarp_terms {
    bool crc, large;
    uint8_t rtr;       /* one of enum sw_mpa_rtr: the first message of the initiator; 0: any */
    uint16_t ird, ord; /* of this side */
};

struct sw_iwarp_start {
    enum sw_iwarp_start_state state;
    enum sw_iwarp_start_failure failure;
    uint16_t cause; /* of SW_IWARP_REFUSED: enum sw_terminate_cause */
    uint64_t due_ns;
    struct sw_iwarp_start_config config;
    struct sw_iwarp_terms terms;
    struct sw_mpa_frame peer; /* what came; its private data is in `in` */
    uint16_t in_len, out_len;
    uint8_t in[SW_MPA_FRAME_MAX];
    uint8_t out[SW_MPA_FRAME_MAX]; /* to be sent when `out_len` is not 0; the user clears that */
};

void sw_iwarp_start_connect(struct sw_iwarp_start *s, const struct sw_iwarp_start_config *config,
                            uint64_t now_ns);
void sw_iwarp_start_listen(struct sw_iwarp_start *s, const struct sw_iwarp_start_config *config,
                           uint64_t now_ns);

/* Takes bytes of the stream. Returns how many were the machine's: what is behind them is of the
 * connection. */
size_t sw_iwarp_start_take(struct sw_iwarp_start *s, const uint8_t *bytes, size_t len);

/* The answer to a request; the config may say other things than that of listen(). */
void sw_iwarp_start_accept(struct sw_iwarp_start *s, const struct sw_iwarp_start_config *config,
                           uint64_t now_ns);
void sw_iwarp_start_reject(struct sw_iwarp_start *s, const uint8_t *private_data,
                           uint16_t private_len);

/* ACCEPTED: the first message came whole. */
void sw_iwarp_start_first_came(struct sw_iwarp_start *s);

/* The peer will send nothing more. */
void sw_iwarp_start_closed(struct sw_iwarp_start *s);

/* Time has passed; not before `due_ns`, which is UINT64_MAX where nothing is waited for. */
void sw_iwarp_start_tick(struct sw_iwarp_start *s, uint64_t now_ns);

#endif
