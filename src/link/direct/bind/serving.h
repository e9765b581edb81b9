/* SPDX-License-Identifier: BSD-2-Clause */
/* What a queue pair serves: its place in the peer's requests, and the one at the head. */
#ifndef SW_LINK_DIRECT_BIND_SERVING_H
#define SW_LINK_DIRECT_BIND_SERVING_H

#include <stdbool.h>
#include <stdint.h>

#include "device/serve/flushing.h"
#include "device/serve/receive.h"

/* The responder: the peer's requests, and our answers. Positions run freely. */
struct sw_direct_serve {
    uint32_t at;         /* next request to read */
    uint32_t bounce_end; /* end of the bounce space served, and what the peer was told of it */
    uint32_t bounce_told;
    uint32_t told;         /* what the peer was told of `at` */
    uint32_t answer_at;    /* next answer to write */
    uint32_t answer_limit; /* first position that may not be written yet */
    uint32_t acks_due;     /* requests done that the peer was not told of */
    uint32_t acknowledged; /* what it was told */
    bool wake_due;         /* something was answered: a peer that sleeps is to be rung */
    uint32_t answer_bounce_at;
    uint32_t read_bytes;         /* of the READ at the head, sent already */
    struct sw_flushing flushing; /* the FLUSH at the head */
    struct sw_receive receive;   /* of the message that is coming in, and its bytes so far */
    uint32_t received_bytes;
    bool is_running; /* the responder runs, or has ended the connection */
    uint64_t rnr_ns; /* since when no receive is posted */
    bool greeted;    /* the peer has said that it begins */
    bool skipping;   /* the rest of an unreliable message that was lost */
    uint32_t lost;   /* messages */
    bool is_over;    /* the peer was told that its retries are used up: nothing more comes */
};

#endif
