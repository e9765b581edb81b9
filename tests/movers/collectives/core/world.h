/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranks whose machines talk by a simulated network. By one seed it delays what they post, one
 * direction and one kind apart from the other, and lets some ranks be slow. It looks at each access
 * to a buffer, and at the buffers when an operation ends.
 */
#ifndef SW_TEST_COLLECTIVES_WORLD_H
#define SW_TEST_COLLECTIVES_WORLD_H

#include "calls.h"
#include "collectives/core/machine.h"

enum world_fault {
    WORLD_NO_FAULT,
    /* of the network */
    WORLD_SETTLES_EARLY, /* says that what was posted has completed */
    WORLD_DONE_OVERTAKES,
    WORLD_KEEPS_MAIL, /* gives an old message again */
    WORLD_ONE_SIDE,   /* of a mailbox, in place of two */
    /* of the tables */
    WORLD_DONE_FORGOTTEN,   /* nobody awaits DONE */
    WORLD_SETTLE_FORGOTTEN, /* DONE is said while pulls go on */
    WORLD_PULLS_FORGOTTEN,  /* a chunk is folded before it is there */
    WORLD_PARITY_FORGOTTEN, /* all chunks lie in one place of scratch */
    WORLD_SLICE_SHIFTED,
    WORLD_PUSH_TOO_LONG,
    WORLD_LEAVES_FORGOTTEN,
    WORLD_PEER_FORGOTTEN, /* the last of several */
    WORLD_STEP_FORGOTTEN,
    WORLD_HALF_MISTAKEN,
    WORLD_PARTIALS_SWAPPED,
    /* of the order */
    WORLD_LINE_FOR_TREE,
    WORLD_TREE_FOR_RING,
    WORLD_FAULTS,
};

/* One rank makes another call than the others, in the last operation. */
struct world_change {
    uint32_t rank;
    void (*change)(struct sw_coll_call *call, uint32_t rank); /* NULL: none */
};

struct world_options {
    struct calls_draw draw;
    enum coll_plan wanted;
    uint32_t eager_bytes, operations;
    enum world_fault fault;
    struct world_change change;
    uint32_t absent; /* a rank that does not begin the last operation; `size`: none */
    uint32_t dies;   /* a rank that ends at some time; `size`: none */
    uint32_t stops;  /* a rank that does not go on with the last operation; `size`: none */
};

struct world_result {
    char failure[200]; /* "": none */
    uint64_t operations, requests, mails, ahead;
    uint64_t gone;     /* operations that ended since a rank had */
    uint64_t held;     /* ranks that wait, at last, for the one that has stopped, or for such */
    uint64_t followed; /* ranks that were waited for, and led to the one that has stopped */
    char error[256];   /* where a change was made: what each rank says */
    char waits[256];   /* where one is absent: what each rank says that has begun */
};

void world_run(const struct world_options *options, struct world_result *result);

#endif
