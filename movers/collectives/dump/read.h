/* SPDX-License-Identifier: BSD-2-Clause */
/* A dump that somebody has written, as numbers. It may be a stranger's: it is checked here. */
#ifndef SW_COLLECTIVES_DUMP_READ_H
#define SW_COLLECTIVES_DUMP_READ_H

#include <jansson.h>

#include "collectives/core/call.h"
#include "collectives/dump/culprit.h"

enum { COLL_DUMP_BYTES_MAX = 16 << 20 };

struct coll_dumped {
    uint32_t kind; /* enum sw_coll_kind, or enum coll_recorded_kind */
    uint32_t type, op, leaves, status, step;
    uint32_t plan;      /* enum coll_plan; ANY: it had not begun */
    uint32_t peer;      /* root, or the other rank of a message */
    int32_t color, key; /* of SPLIT */
    bool has_counts, has_recv_counts;
    uint64_t number, count;               /* SPLIT, SHRINK: the job of the part; 0 */
    const uint64_t *counts, *recv_counts; /* NULL: there are none, or they were lost */
    uint64_t posted_ns, begun_ns, ended_ns;
};

struct coll_dump {
    struct coll_seen seen; /* its page is that of the rank, or of the moment before it failed */
    uint64_t monotonic_ns, realtime_ns;
    struct coll_dumped *operations; /* oldest first */
    size_t count;
    const struct coll_dumped **found; /* the same in an order of its own */
    uint64_t *numbers;                /* of all counts */
    uint16_t ranks[SW_COLL_RANKS_MAX], places[SW_COLL_RANKS_MAX]; /* as of struct coll_site */
};

/* NULL: it is none, as `error` says. */
struct coll_dump *coll_dump_of_json(const json_t *json, char *error, size_t room);
struct coll_dump *coll_dump_of_text(const char *text, size_t bytes, char *error, size_t room);
void coll_dump_free(struct coll_dump *dump);
/* NULL: it is not recorded, or not any more. */
const struct coll_dumped *coll_dump_find(const struct coll_dump *dump, uint64_t number);
/* The same of a message: SEND or RECV. */
const struct coll_dumped *coll_dump_find_message(const struct coll_dump *dump,
                                                 enum coll_recorded_kind kind, uint32_t peer,
                                                 uint64_t number);
/* To run it again: the call of an operation, without buffers, and the rank that made it. Both point
 * into the dump. */
struct sw_coll_call coll_dump_call(const struct coll_dumped *operation);
struct coll_site coll_dump_site(const struct coll_dump *dump);

#endif
