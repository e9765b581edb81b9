/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An operation as a table of steps, of one rank. The steps before `loop` are done once, those of
 * the loop once for each chunk, then the rest. A table holds no addresses.
 *
 * A step is for `peers` ranks from `peer` on, past the last one to rank 0, and for `leaves`
 * contributions of each: `bytes` at a time, all chunks of a loop together. It may take a part
 * of each chunk only.
 *
 * Where ranks have places of their own in the tree, those in rounds are counted by these: then
 * `peer` is a place.
 *
 * Folds of several rounds have partials (core/fold.h), which may be longer than leaves. `bytes`,
 * `skip` and `part` are those of leaves in any case.
 */
#ifndef SW_COLLECTIVES_STEP_H
#define SW_COLLECTIVES_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/core/record.h"

enum coll_action {
    COLL_MAIL,         /* OPEN with the payload `from`; or DONE */
    COLL_AWAIT,        /* the messages of all other ranks; those of OPEN are compared */
    COLL_PULL,         /* from the peer's `from` to `to` */
    COLL_PUSH,         /* from `from` to the peer's `to` */
    COLL_SETTLE_PULLS, /* of this chunk; and all that was posted before them */
    COLL_SETTLE,       /* all that was posted */
    COLL_FOLD,         /* the leaves of all ranks, this one's `own` and others' `from`, into `to` */
    COLL_COPY,         /* from `from` to `to` */
    COLL_FOLD_LEAVES,  /* those of the peer, `from`, and this rank's `own`, into the partial `to` */
    COLL_FOLD_PARTIALS, /* the peer's `from` and this rank's `own` into `to`, in their order */
    COLL_FINISH,        /* the partial `from` of all leaves into the result `to` */
    COLL_DELIVER,       /* results `from`, each to the rank whose block it is in */
    COLL_ACTIONS,
};

enum coll_place {
    COLL_NOWHERE,
    COLL_SEND,
    COLL_RECV,
    COLL_SCRATCH, /* of the peer, too, in algorithms of several rounds */
    COLL_MAILED,  /* the payload of that rank */
};

/* offset + chunk's number * chunk + rank * peer + leaf * leaf. In SCRATCH chunks lie in two places
 * by turns, and ranks are counted from the one after this. */
struct coll_span {
    enum coll_place place;
    uint64_t offset, chunk, peer, leaf;
};

struct coll_step {
    enum coll_action action;
    enum coll_slot slot; /* of MAIL and AWAIT */
    bool is_ahead;       /* of the next chunk */
    bool is_partial;     /* PUSH: of partials */
    uint32_t peer, peers, leaves;
    uint64_t bytes;
    uint64_t skip, part; /* of each chunk: from there on, so many bytes; 0: all */
    struct coll_span from, to, own;
};

struct coll_table {
    enum coll_plan plan;
    bool has_places; /* `peer` is a place of the tree, not a rank */
    struct coll_step *steps;
    uint32_t count, room;
    uint32_t loop, loop_end; /* the first step of the loop, and the one after it */
    uint64_t chunk, chunks;  /* bytes; how many */
};

/* A line about the step, for people. */
void coll_step_text(const struct coll_table *table, uint32_t step, char *text, size_t room);

#endif
