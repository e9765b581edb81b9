/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of steps while they are made: plan.c, and a file for each algorithm of many rounds. */
#ifndef SW_COLLECTIVES_MAKER_H
#define SW_COLLECTIVES_MAKER_H

#include "collectives/core/plan.h"

enum { COLL_LINE = 64, COLL_CHUNK_MAX = 1 << 20 /* bytes of a request, at most */ };

struct coll_plan_maker {
    struct coll_table *table;
    const struct sw_coll_call *call; /* a plain one */
    const struct coll_site *site;
    uint32_t rank, size, root, leaves; /* in rounds `rank` and `root` are places */
    uint64_t scratch_bytes, request_max;
    uint64_t type;        /* bytes of an element */
    uint64_t whole;       /* bytes of a buffer, or of a block where all are alike */
    uint64_t own;         /* of this rank's block */
    uint64_t before, all; /* bytes of the blocks before that, and of all blocks */
};

void coll_plan_add(struct coll_plan_maker *maker, struct coll_step step);
/* For all other ranks; for that one. */
void coll_plan_for_others(struct coll_plan_maker *maker, struct coll_step step);
void coll_plan_for_one(struct coll_plan_maker *maker, uint32_t peer, struct coll_step step);

/* STEP to that rank, and from it. */
void coll_plan_mail_step(struct coll_plan_maker *maker, uint32_t rank);
void coll_plan_await_step(struct coll_plan_maker *maker, uint32_t rank);

/* The whole table, beside its name. */
void coll_plan_halving(struct coll_plan_maker *maker);
void coll_plan_ring(struct coll_plan_maker *maker);

#endif
