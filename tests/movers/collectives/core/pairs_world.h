/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranks that send messages to each other in a simulated network: what is written becomes visible
 * late, in the order of its way, as a seed draws it. Each message that comes is looked at.
 */
#ifndef SW_TEST_COLLECTIVES_PAIRS_WORLD_H
#define SW_TEST_COLLECTIVES_PAIRS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/core/pairs.h"

enum {
    RANKS_MAX = 5,
    MESSAGES_MAX = 40, /* of an ordered pair */
    BYTES_MAX = 700,
    SHORT = 64,
    PIECE = 100,
    GUARD = 16,
    GUARD_BYTE = 0xa5,
    SPOILT = 0x3c,
    WRITES_MAX = 4096,
    TURNS_MAX = 200000,
};

enum fault {
    NO_FAULT,
    RING_OVERRUN,   /* places that are said to be free, and are not */
    NOTE_OVERTAKES, /* a mark that is seen before the payload */
    WRITTEN_EARLY,  /* WRITTEN that is seen before the data */
    SETTLES_EARLY,  /* a push that is said to have completed, and goes on */
    OLD_NOTE,       /* a note of a whole ring before that is taken again */
    OLD_ROOM,       /* a room likewise */
    PUSH_TOO_LONG,  /* a byte beyond the end */
    SHORTER_UNSEEN, /* notes whose counts are not told */
    DEATH_HAS_GAPS, /* a dead rank's words are seen, and data before them are not */
    FAULTS,
};

/* What one rank has written and another does not see yet. */
struct write {
    enum { WRITE_NOTE, WRITE_WORD, WRITE_DATA } kind;
    struct coll_note note;
    enum coll_word word;
    uint64_t value;
    uint32_t bytes;
    uint64_t to; /* DATA */
    const uint8_t *from;
    uint8_t payload[SHORT];
};

struct way { /* from one rank to another: writes become visible in their order */
    struct write *writes;
    uint32_t posted, seen, settled;
    /* What the receiver of them has: its mailbox. */
    struct {
        uint8_t payload[SHORT];
        struct coll_note note;
    } notes[2][COLL_RING];
    uint64_t words[COLL_WORDS];
};

struct message {
    struct coll_transfer sent, received;
    bool was_posted[2];
    uint8_t *from, *to;
    uint8_t copy[BYTES_MAX];
};

struct node {
    struct world *world;
    uint32_t rank;
    struct coll_pairs_port port;
    struct coll_pairs machine;
    struct coll_pair pairs[RANKS_MAX];
};

struct world {
    uint64_t random;
    enum fault fault;
    uint32_t size, messages;
    struct node nodes[RANKS_MAX];
    struct way ways[RANKS_MAX][RANKS_MAX];
    struct message all[RANKS_MAX][RANKS_MAX][MESSAGES_MAX];
    uint32_t over;
    uint32_t dead; /* a rank; `size`: none */
    bool is_death_known;
    char failure[300];
};

uint64_t world_draw(struct world *world, uint64_t below);
/* The first failure counts. */
void say_failure(struct world *world, const char *text);
struct world *make_world(uint64_t seed, uint32_t size, uint32_t messages, enum fault fault);
void free_world(struct world *world);
void make_message(struct world *world, uint32_t from, uint32_t to, uint32_t index, uint64_t bytes);
/* Those of all pairs, of drawn sizes. */
void make_all_messages(struct world *world);
/* False: it was posted before. */
bool post_side(struct world *world, uint32_t from, uint32_t to, uint32_t index, bool is_send);
/* The next of a pair that was not posted. */
void post_next(struct world *world, uint32_t from, uint32_t to, bool is_send);
void rank_turns(struct world *world, struct node *node);
void network_turns(struct world *world);
/* A post, a rank or the network, as it is drawn. */
void world_turns(struct world *world);
/* All messages of all pairs, in any order that keeps that of each side. */
void exchange_all(struct world *world);
/* It does nothing any more, and of what it wrote last some is never seen. */
void let_die(struct world *world, uint32_t rank);

#endif
