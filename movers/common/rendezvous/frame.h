/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages (message.h) over a socket that does not block, in parts, as they come and go. */
#ifndef SW_MOVERS_RENDEZVOUS_FRAME_H
#define SW_MOVERS_RENDEZVOUS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/rendezvous/message.h"

enum mover_meet_progress {
    MOVER_MEET_MORE,      /* the socket has no more for now, or no more room */
    MOVER_MEET_WHOLE,     /* a message is there; nothing is left to send */
    MOVER_MEET_ENDED,     /* the other side has closed */
    MOVER_MEET_MALFORMED, /* no message of this protocol, or too long */
    MOVER_MEET_NO_MEMORY,
};

/* All zero to begin with. */
struct mover_meet_inbox {
    uint8_t bytes[MOVER_MEET_HEADER_BYTES];
    struct mover_meet_header header;
    uint8_t *body;
    size_t got; /* of header and body together */
};

/* WHOLE: `header` and `body` are there, until mover_meet_next(). A body of more than `body_max` is
 * refused before there is memory for it. */
enum mover_meet_progress mover_meet_receive(struct mover_meet_inbox *in, int fd, size_t body_max);
void mover_meet_next(struct mover_meet_inbox *in);

/* All zero to begin with. */
struct mover_meet_outbox {
    uint8_t bytes[1024]; /* short messages, and the header of the last one */
    size_t len, sent;
    const uint8_t *body; /* of the last one: the caller's */
    size_t body_bytes;
};

/* Bytes that are copied; false: there is no room. */
bool mover_meet_put(struct mover_meet_outbox *out, const void *bytes, size_t len);
/* The last ones: they stay the caller's until they are sent. */
void mover_meet_put_last(struct mover_meet_outbox *out, const void *bytes, size_t len);
bool mover_meet_has_more(const struct mover_meet_outbox *out);
enum mover_meet_progress mover_meet_send(struct mover_meet_outbox *out, int fd);

#endif
