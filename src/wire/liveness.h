/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What two processes say to each other about their lives (docs/liveness.md): a question and its
 * answer as MADs to QP 1, of a vendor's class that others drop, and words over TCP. Codecs only.
 */
#ifndef SW_WIRE_LIVENESS_H
#define SW_WIRE_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/mad.h"

enum sw_liveness_mad_kind {
    SW_LIVENESS_MAD_ASK = 1, /* "where do you listen?" */
    SW_LIVENESS_MAD_TELL,
    SW_LIVENESS_MAD_INVITE, /* "ask me" */
};

struct sw_liveness_mad {
    enum sw_liveness_mad_kind kind;
    uint16_t from, to; /* slots */
    uint16_t port;     /* TELL: TCP */
    uint64_t nonce;    /* of the question, and of its answer */
    uint64_t caller;   /* TELL: what who calls has to say, ... */
    uint64_t called;   /* ... and what it then hears */
};

void sw_liveness_mad_encode(const struct sw_liveness_mad *message, uint8_t mad[SW_MAD_BYTES]);
/* False: it is no MAD of ours. */
bool sw_liveness_mad_decode(const uint8_t mad[SW_MAD_BYTES], struct sw_liveness_mad *out);

enum sw_liveness_word_kind {
    SW_LIVENESS_HELLO = 1, /* who calls: slots, its own port, token */
    SW_LIVENESS_WELCOME,   /* who is called: token */
    SW_LIVENESS_PING,      /* token: any; of the queue pair `from` to `to`, by this port, if any */
    SW_LIVENESS_PONG,      /* the same one: all that had come by then was received; by this port */
    SW_LIVENESS_LEFT,      /* the queue pair `from` is connected to `to` no longer */
    SW_LIVENESS_GOODBYE,   /* the connection has no use any more */
};

struct sw_liveness_word {
    enum sw_liveness_word_kind kind;
    uint8_t mark;      /* LEFT: of the life that ended, as in the BTH */
    uint16_t port;     /* HELLO: TCP, PING and PONG: the UDP source port; 0: it is not told */
    uint32_t from, to; /* HELLO: slots; LEFT, PING, PONG: QPNs */
    uint64_t token;
};
#define SW_LIVENESS_WORD_BYTES 24u

void sw_liveness_word_encode(const struct sw_liveness_word *word,
                             uint8_t out[SW_LIVENESS_WORD_BYTES]);
/* False: nobody of ours says this. */
bool sw_liveness_word_decode(const uint8_t bytes[SW_LIVENESS_WORD_BYTES],
                             struct sw_liveness_word *out);

#endif
