/* SPDX-License-Identifier: BSD-2-Clause */
/* Which ranks of a job are there: rank 0 calls the roll. No clock and no I/O. */
#ifndef SW_MOVERS_RENDEZVOUS_ROLL_H
#define SW_MOVERS_RENDEZVOUS_ROLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/rendezvous/message.h"
#include "common/rendezvous/rendezvous.h"

enum { MOVER_ROLL_NAME_MAX = 64 };

struct mover_roll {
    uint32_t size, card_bytes;
    uint8_t *cards; /* `size` of them */
    uint32_t present;
    bool is_present[MOVER_RENDEZVOUS_RANKS_MAX];
    char names[MOVER_RENDEZVOUS_RANKS_MAX][MOVER_ROLL_NAME_MAX]; /* where each has come from */
};

/* Rank 0 itself is there. */
void mover_roll_open(struct mover_roll *roll, uint32_t size, const void *card, uint32_t card_bytes,
                     void *cards);
/* A rank has come from `name`. False: it does not fit the others, as `text` says; then the job
 * cannot be what it was meant to be. */
bool mover_roll_take(struct mover_roll *roll, const struct mover_meet_join *join, const void *card,
                     const char *name, char *text, size_t text_bytes);
bool mover_roll_is_full(const struct mover_roll *roll);
/* "rank 3", or "ranks 3, 5 to 9 and 12"; of many the first. */
void mover_roll_absent(const struct mover_roll *roll, char *text, size_t bytes);

#endif
