/* SPDX-License-Identifier: BSD-2-Clause */
/* What one origin (origin.h) has of a server's places, or of what else is scarce there: when that
 * is too much, and which client goes first where a place is wanted. */
#ifndef SW_MOVERS_SHARE_H
#define SW_MOVERS_SHARE_H

#include <stdbool.h>
#include <stdint.h>

enum { MOVER_SHARE_TIMES_FREE = 3 };

/* What the clients of an origin have that have not proved themselves. */
struct mover_share {
    uint64_t amount;
    uint64_t since_ns; /* when the oldest of them came */
    void *oldest;      /* NULL: there is none */
};

static inline void mover_share_add(struct mover_share *share, uint64_t amount, uint64_t since_ns,
                                   void *client)
{
    share->amount += amount;
    if (share->oldest && share->since_ns <= since_ns)
        return;
    share->oldest = client;
    share->since_ns = since_ns;
}

/* The oldest of `a` goes before that of `b`: its origin has more, or as much and it is older. What
 * is within `spare`, which each may have in any case, counts alike. */
static inline bool mover_share_goes_first(const struct mover_share *a, const struct mover_share *b,
                                          uint64_t spare)
{
    const uint64_t of_a = a->amount > spare ? a->amount : spare;
    const uint64_t of_b = b->amount > spare ? b->amount : spare;
    if (!a->oldest || !b->oldest)
        return a->oldest;
    return of_a > of_b || (of_a == of_b && a->since_ns < b->since_ns);
}

/* A client that came just now is about to prove itself. */
static inline bool mover_share_is_young(const struct mover_share *share, uint64_t now_ns,
                                        uint64_t young_ns)
{
    return now_ns < share->since_ns + young_ns;
}

/* An origin that has `own` may have `more` only if that is no more than three times what is free
 * then: so origins that come one by one get less each, and the next one gets something still. */
static inline bool mover_share_is_too_large(uint64_t own, uint64_t more, uint64_t free)
{
    return own && own + more > MOVER_SHARE_TIMES_FREE * (free > more ? free - more : 0);
}

#endif
