/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rendezvous/roll.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { RUNS_MAX = 12 }; /* of absent ranks that a text names */

void mover_roll_open(struct mover_roll *roll, uint32_t size, const void *card, uint32_t card_bytes,
                     void *cards)
{
    assert(size && size <= MOVER_RENDEZVOUS_RANKS_MAX);
    memset(roll, 0, sizeof(*roll));
    roll->size = size;
    roll->card_bytes = card_bytes;
    roll->cards = cards;
    roll->present = 1;
    roll->is_present[0] = true;
    memcpy(cards, card, card_bytes);
}

bool mover_roll_take(struct mover_roll *roll, const struct mover_meet_join *join, const void *card,
                     const char *name, char *text, size_t text_bytes)
{
    const uint32_t rank = join->rank;
    if (join->size != roll->size)
        snprintf(text, text_bytes, "rank %u at %s says that there are %u ranks, and rank 0 %u",
                 rank, name, join->size, roll->size);
    else if (!rank)
        snprintf(text, text_bytes, "%s claims to be rank 0, too", name);
    else if (roll->is_present[rank])
        snprintf(text, text_bytes, "two processes claim to be rank %u: at %s and %s", rank,
                 roll->names[rank], name);
    else if (join->card_bytes != roll->card_bytes)
        snprintf(text, text_bytes, "rank %u at %s has a card of %u bytes, and rank 0 one of %u",
                 rank, name, join->card_bytes, roll->card_bytes);
    else {
        roll->is_present[rank] = true;
        roll->present++;
        snprintf(roll->names[rank], sizeof(roll->names[rank]), "%s", name);
        memcpy(roll->cards + (size_t)rank * roll->card_bytes, card, roll->card_bytes);
        return true;
    }
    return false;
}

bool mover_roll_is_full(const struct mover_roll *roll)
{
    return roll->present == roll->size;
}

static void append_words(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append_words(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

/* One behind the last of a run of absent ranks that begins at `first`. */
static uint32_t end_of_run(const struct mover_roll *roll, uint32_t first)
{
    while (first < roll->size && !roll->is_present[first])
        first++;
    return first;
}

void mover_roll_absent(const struct mover_roll *roll, char *text, size_t bytes)
{
    uint32_t named = 0, runs = 0;
    const uint32_t absent = roll->size - roll->present;
    snprintf(text, bytes, "%s", absent == 1 ? "rank " : "ranks ");
    for (uint32_t rank = 0; rank < roll->size && runs < RUNS_MAX; rank++) {
        const uint32_t end = end_of_run(roll, rank);
        if (end == rank)
            continue;
        named += end - rank;
        append_words(text, bytes, "%s%u", !runs ? "" : named == absent ? " and " : ", ", rank);
        if (end - rank > 1)
            append_words(text, bytes, " to %u", end - 1);
        runs++;
        rank = end;
    }
    if (named < absent)
        append_words(text, bytes, " and %u more", absent - named);
}
