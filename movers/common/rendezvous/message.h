/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What ranks say while they find each other, as bytes: docs/collectives-protocol.md, "Rendezvous".
 * A header is checked before the body is read, and names its length; a body is checked as a whole,
 * then trusted. A stranger's bytes may come here.
 */
#ifndef SW_MOVERS_RENDEZVOUS_MESSAGE_H
#define SW_MOVERS_RENDEZVOUS_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MOVER_MEET_VERSION = 1,
    MOVER_MEET_PROVEN_BYTES = 12, /* of a header: what its proof covers */
    MOVER_MEET_PROOF_BYTES = 32,
    MOVER_MEET_HEADER_BYTES = MOVER_MEET_PROVEN_BYTES + MOVER_MEET_PROOF_BYTES,
    MOVER_MEET_NONCE_BYTES = 32,
    MOVER_MEET_JOIN_BYTES = 16 + MOVER_MEET_NONCE_BYTES, /* before the card */
    MOVER_MEET_REFUSAL_BYTES = 4,                        /* before the text */
    MOVER_MEET_TEXT_MAX = 400,
};

enum mover_meet_kind {
    MOVER_MEET_WELCOME = 1, /* rank 0 to all who connect: a nonce */
    MOVER_MEET_JOIN,        /* the answer to it */
    MOVER_MEET_NOTE,        /* rank 0 has taken it; with a text: a line for the log */
    MOVER_MEET_CARDS,       /* all are there */
    MOVER_MEET_REFUSAL,     /* it fails, and why */
};

enum mover_meet_reason {
    MOVER_MEET_ABSENT = 1,
    MOVER_MEET_GONE,
    MOVER_MEET_UNLIKE,
    MOVER_MEET_OTHER_VERSION,
    MOVER_MEET_UNPROVEN,
    MOVER_MEET_FULL, /* rank 0 has no memory */
};

struct mover_meet_header {
    uint16_t version, kind;
    uint32_t body_bytes;
};

struct mover_meet_join {
    uint32_t rank, size, card_bytes;
    uint32_t patience_ms; /* how long this rank waits from now on */
    uint8_t nonce[MOVER_MEET_NONCE_BYTES];
};

/* Without its proof, which stands behind. */
void mover_meet_put_header(uint8_t bytes[MOVER_MEET_HEADER_BYTES], enum mover_meet_kind kind,
                           uint32_t body_bytes);
/* False: not of this protocol. The version may be another than ours, the kind any. */
bool mover_meet_get_header(const uint8_t bytes[MOVER_MEET_HEADER_BYTES],
                           struct mover_meet_header *header);

void mover_meet_put_join(uint8_t bytes[MOVER_MEET_JOIN_BYTES], const struct mover_meet_join *join);
/* False: it is none, or its card is longer or shorter than it says. */
bool mover_meet_get_join(const uint8_t *bytes, size_t len, struct mover_meet_join *join);

/* Returns the bytes of the body. */
size_t mover_meet_put_refusal(uint8_t bytes[MOVER_MEET_REFUSAL_BYTES + MOVER_MEET_TEXT_MAX],
                              enum mover_meet_reason reason, const char *text);
/* False: it is none. Bytes that a terminal could not show become '?'. */
bool mover_meet_get_refusal(const uint8_t *bytes, size_t len, enum mover_meet_reason *reason,
                            char text[MOVER_MEET_TEXT_MAX + 1]);
/* The same for the text of a note. */
bool mover_meet_get_text(const uint8_t *bytes, size_t len, char text[MOVER_MEET_TEXT_MAX + 1]);
/* The negative errno of mover_rendezvous(). */
int mover_meet_errno(enum mover_meet_reason reason);

#endif
