/* SPDX-License-Identifier: BSD-2-Clause */
/* What a rank calls: whether it makes sense, which way it goes, which memory it needs. */
#ifndef SW_COLLECTIVES_CALL_H
#define SW_COLLECTIVES_CALL_H

#include "collectives/core/record.h"
#include "sidewire/coll.h"

/* The rank that makes a call, and what all ranks have agreed on. */
struct coll_site {
    uint32_t rank, size;
    uint32_t eager_bytes;   /* alike on all ranks */
    enum coll_plan wanted;  /* alike on all ranks; ANY: the fastest */
    uint64_t scratch_bytes; /* alike on all ranks: coll_scratch_min() or more */
    uint32_t request_max;   /* alike: bytes of a pull or a push; 0: as it is best */
    /* The rank at each place of the tree, and the place of each rank, alike; NULL: its own. */
    const uint16_t *ranks, *places;
};

static inline uint32_t coll_rank_at(const struct coll_site *site, uint32_t place)
{
    return site->ranks ? site->ranks[place] : place;
}

static inline uint32_t coll_place_of(const struct coll_site *site, uint32_t rank)
{
    return site->places ? site->places[rank] : rank;
}

/* INVALID with a text, or OK. `error` may be NULL. All below is for calls that are OK. */
enum sw_coll_status coll_call_check(const struct sw_coll_call *call, const struct coll_site *site,
                                    struct sw_coll_error *error);
enum coll_plan coll_call_plan(const struct sw_coll_call *call, const struct coll_site *site);
/* Other ranks, or requests of this one, touch its buffers: they have to be registered. */
static inline bool coll_call_is_direct(const struct sw_coll_call *call,
                                       const struct coll_site *site)
{
    return coll_call_plan(call, site) != COLL_PLAN_EAGER;
}

/* What there is of the buffers of this rank; 0: it is not used. */
struct coll_extents {
    uint64_t send_bytes, recv_bytes;
};
struct coll_extents coll_call_extents(const struct sw_coll_call *call,
                                      const struct coll_site *site);

/* The call without what its kind does not use: 0 there, and 1 leaf at least. */
struct sw_coll_call coll_call_plain(const struct sw_coll_call *call, uint32_t rank);
/* What is sent: a root may broadcast what it has in `recv`, and others have nothing else. */
static inline const void *coll_call_send(const struct sw_coll_call *call, uint32_t rank)
{
    const bool is_recv = call->kind == SW_COLL_BROADCAST && (rank != call->root || !call->send);
    return is_recv ? call->recv : call->send;
}
/* Each rank has a block of its own in what is sent or received. */
bool coll_kind_has_blocks(enum sw_coll_kind kind);
/* Elements before that rank's block. */
uint64_t coll_blocks_before(const uint64_t *counts, uint64_t count, uint32_t rank);
/* EAGER: how many bytes travel with OPEN, of a plain call. */
uint64_t coll_call_mailed(const struct sw_coll_call *call, uint32_t from, uint32_t to);

/* "eager", "owners", "halving", "ring"; NULL: there is none of that number. */
const char *coll_plan_name(enum coll_plan plan);
/* Others land what they give in the scratch of this rank. */
static inline bool coll_plan_has_rounds(enum coll_plan plan)
{
    return plan == COLL_PLAN_HALVING || plan == COLL_PLAN_RING;
}
/* False: no way has that name. */
#define COLL_PLAN_NAMES "eager, owners, halving and ring"
bool coll_plan_of_name(const char *name, enum coll_plan *plan);

#endif
