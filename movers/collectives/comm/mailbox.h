/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A rank's mailbox: a slice for each other rank, which that one writes to and reads from. The
 * outbox has slices laid out alike, from which this rank writes to those of others.
 * docs/collectives-protocol.md, "Mailboxes", says who writes what.
 */
#ifndef SW_COLLECTIVES_MAILBOX_H
#define SW_COLLECTIVES_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "collectives/core/note.h"

enum {
    /* Words of 8 bytes that the peer writes. */
    COLL_AT_SLEEP = 0,  /* the number of its sleep that wants a doorbell */
    COLL_AT_ABORT = 8,  /* the status that it has ended all with */
    COLL_AT_LEFT = 16,  /* it has closed: the number of the operation that it does not begin */
    COLL_AT_WHOLE = 24, /* 1: a WRITE becomes visible there from its first byte to its last */
    COLL_AT_VOTE = 32,  /* the number of its newest vote */
    COLL_AT_WORDS = 40, /* for each enum coll_word */
    /* Words that the mailbox's owner writes, and the peer reads: the newest marks and words that it
     * was sent, and whether ABORT was. */
    COLL_AT_TOLD = 64,
    COLL_TOLD_ABORT = COLL_SLOTS,
    COLL_TOLD_VOTE,
    COLL_TOLD_NOTE,
    COLL_TOLD_ROOM,
    COLL_TOLD_WORD, /* the first of COLL_WORDS */
    COLL_TOLD_WORDS = COLL_TOLD_WORD + COLL_WORDS,
    /* The peer's text of ABORT. */
    COLL_AT_TEXT = 192,
    COLL_TEXT_BYTES = 256,
    /* Which ranks it knows to be gone: a bit for each. Part of ABORT, too. */
    COLL_AT_GONE = COLL_AT_TEXT + COLL_TEXT_BYTES,
    COLL_GONE_BYTES = 128,
    /* Its votes on who is gone, those of even numbers and of odd ones. */
    COLL_AT_VOTES = COLL_AT_GONE + COLL_GONE_BYTES,
    COLL_VOTE_BYTES = 640,
    COLL_AT_SIDES = COLL_AT_VOTES + 2 * COLL_VOTE_BYTES,
};

static_assert(COLL_AT_TOLD + 8 * COLL_TOLD_WORDS <= COLL_AT_TEXT, "they have room");

struct coll_layout {
    uint32_t eager_bytes; /* a multiple of 64 */
    uint32_t side_bytes;
    uint32_t short_bytes; /* payload of a NOTE; a multiple of 64 */
    uint32_t notes_at, rooms_at;
    uint32_t slice_bytes;
};

static inline struct coll_layout coll_layout_of(uint32_t eager_bytes)
{
    enum { LINE = sizeof(struct coll_record), SHARE = 4 };
    struct coll_layout layout = {.eager_bytes = eager_bytes,
                                 .side_bytes = eager_bytes + COLL_SLOTS * LINE,
                                 .short_bytes = eager_bytes / SHARE / LINE * LINE};
    layout.notes_at = COLL_AT_SIDES + 2 * layout.side_bytes;
    layout.rooms_at = layout.notes_at + COLL_RING * (layout.short_bytes + LINE);
    layout.slice_bytes = layout.rooms_at + COLL_RING * LINE;
    return layout;
}

/* Behind the slices is what this rank shows to all others (core/shown.h). */
static inline uint64_t coll_shown_at(const struct coll_layout *layout, uint32_t size)
{
    return (uint64_t)size * layout->slice_bytes;
}

/* Where in a slice the record of the message of that number lies. */
static inline uint32_t coll_record_at(const struct coll_layout *layout, uint64_t number,
                                      enum coll_slot slot)
{
    const uint32_t behind = (uint32_t)slot * (uint32_t)sizeof(struct coll_record);
    return COLL_AT_SIDES + (uint32_t)(number % 2) * layout->side_bytes + layout->eager_bytes +
           behind;
}

/* The same of a NOTE or a ROOM. */
static inline uint32_t coll_note_at(const struct coll_layout *layout, bool is_room, uint64_t number)
{
    const uint32_t place = (uint32_t)(number % COLL_RING), bytes = sizeof(struct coll_note);
    return is_room ? layout->rooms_at + place * bytes
                   : layout->notes_at + place * (layout->short_bytes + bytes) + layout->short_bytes;
}

static inline uint32_t coll_vote_at(uint64_t number)
{
    return COLL_AT_VOTES + (uint32_t)(number % 2) * COLL_VOTE_BYTES;
}

/* Words that two sides share are written and read whole, whoever writes them. */
static inline uint64_t coll_word_read(const void *at)
{
    return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
}

static inline void coll_word_write(void *at, uint64_t value)
{
    __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELEASE);
}

/* The mark of a message is there. */
static inline bool coll_mail_is_there(const struct coll_layout *layout, const uint8_t *slice,
                                      uint64_t number, enum coll_slot slot)
{
    const struct coll_record *record = (const void *)(slice + coll_record_at(layout, number, slot));
    return coll_word_read(&record->mark) == number;
}

/* At its place; a payload that is not in it ends where it begins. */
static inline void coll_put_note(uint8_t *place, const struct coll_note *note, const void *payload)
{
    if (payload)
        memcpy(place - note->payload_bytes, payload, note->payload_bytes);
    memcpy(place, note, sizeof(*note));
}

/* What is at the place of that one: itself, or one that is older or newer. */
static inline uint64_t coll_note_mark(const struct coll_layout *layout, const uint8_t *slice,
                                      bool is_room, uint64_t number)
{
    const struct coll_note *note = (const void *)(slice + coll_note_at(layout, is_room, number));
    return coll_word_read(&note->mark);
}

#endif
