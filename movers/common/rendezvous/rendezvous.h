/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The processes of a job, its ranks, find each other: each brings a card, and gets the cards of
 * all. Rank 0 listens at an address that the others know. docs/collectives-protocol.md,
 * "Rendezvous", has the bytes.
 *
 *     const struct mover_rendezvous how = {.rank = rank, .size = size, .at = "192.0.2.1:4450"};
 *     if (mover_rendezvous(&how, &mine, sizeof(mine), all, deadline_ns, error, sizeof(error)))
 *         return mover_fail("%s", error);
 */
#ifndef SW_MOVERS_RENDEZVOUS_H
#define SW_MOVERS_RENDEZVOUS_H

#include <stddef.h>
#include <stdint.h>

enum { MOVER_RENDEZVOUS_RANKS_MAX = 1024, MOVER_RENDEZVOUS_CARD_MAX = 4096 };

struct mover_rendezvous {
    uint32_t rank, size;
    const char *at; /* "HOST:PORT" or "[HOST]:PORT": rank 0 listens there */
    /* What all ranks of the job know and strangers do not; each proves it. NULL: whoever reaches
     * rank 0 may join. */
    const char *token;
    /* After `note_ms` (0: 10 s), then three times as long: a line without its newline that names
     * the absent ranks. NULL: nothing is said. */
    void (*log)(void *context, const char *line);
    void *log_context;
    uint32_t note_ms;
};

/*
 * Waits until all ranks are there, and puts their cards into `cards`, of `bytes` each, in the order
 * of the ranks; all must bring as many. A deadline is of CLOCK_MONOTONIC; the earliest of all ranks
 * counts, and each waits for a second more to be told who is absent. 0, or what every rank gets,
 * with a text that names ranks:
 *
 *     -ETIMEDOUT          not all have come
 *     -ECONNRESET         a rank that had come has ended
 *     -EPROTONOSUPPORT    a rank speaks another version
 *     -EPROTO             two claim to be the same rank, or a rank says another size; or the bytes
 *                         that came make no sense
 *     -EACCES             the token is not that of rank 0
 *     -EINVAL             an argument is wrong, or `at` is no address
 *
 * or another negative errno of this rank alone: rank 0 may not listen there, for one.
 */
int mover_rendezvous(const struct mover_rendezvous *how, const void *card, size_t bytes,
                     void *cards, uint64_t deadline_ns, char *error, size_t error_bytes);

#endif
