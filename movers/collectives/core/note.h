/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of one rank to another. Those of an ordered pair of ranks are numbered from 1, on each
 * side in the order of its posts: so the third that is sent is the third that is received. In the
 * slices of a pair there are, beside the places of operations:
 *
 *     NOTE   of the sender, COLL_RING places by turns: what it sends. A short message is in its
 *            note, or ends where that begins; a long one is only offered by it
 *     ROOM   of the receiver of a long message, as many places: what it awaits, and where
 *     WRITTEN  a word of the sender: the newest long message whose data are there
 *     TAKEN    a word of the receiver: so many messages were received, and their places are free
 *
 * A long message whose room is there already has no note.
 */
#ifndef SW_COLLECTIVES_NOTE_H
#define SW_COLLECTIVES_NOTE_H

#include "collectives/core/record.h"

enum { COLL_RING = 8 };

enum coll_form {
    COLL_SHORT, /* with its payload */
    COLL_OFFER, /* its data come when there is room */
    COLL_ROOM,  /* of the receiver */
    COLL_FORMS,
};

enum coll_word { COLL_WRITTEN, COLL_TAKEN, COLL_WORDS };

struct coll_note {
    union {
        struct {
            uint64_t address; /* of ROOM */
            uint32_t key;
        };
        uint8_t payload[COLL_INLINE_MAX]; /* of SHORT, where it has room */
    };
    uint64_t count; /* elements */
    uint32_t payload_bytes;
    uint8_t type, form;
    uint8_t reserved[2];
    uint64_t tag; /* of SHORT and OFFER */
    uint8_t spare[8];
    uint64_t mark; /* the number of the message */
};

static_assert(sizeof(struct coll_note) == 64, "one cache line");

#endif
