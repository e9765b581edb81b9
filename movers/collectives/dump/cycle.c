/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A rank whose program waits for another one goes on only after that. So those that wait for nobody
 * who waits are taken away, again and again: if some are left, there is a cycle among them.
 */
#include "collectives/dump/cycle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAMED_MAX = 6 };

struct waiting {
    const struct coll_seen *job;
    uint16_t at[SW_COLL_RANKS_MAX]; /* of a rank in `job`, from 1; 0: it waits for nobody */
    uint32_t size;
};

static const struct coll_page *waiting_page(const struct waiting *waiting, uint32_t rank)
{
    return waiting->at[rank] ? &waiting->job[waiting->at[rank] - 1].page : NULL;
}

/* What a stopped rank shows may have come since. */
static bool waits_for_sure(const struct coll_seen *seen)
{
    const struct coll_page_state *state = &seen->page.state;
    return seen->process == COLL_PROCESS_ALIVE && state->is_waiting &&
           (state->activity == COLL_IN_OPERATION || state->activity == COLL_IN_SEND ||
            state->activity == COLL_IN_RECV || state->activity == COLL_IN_OPENING);
}

/* The message that this rank awaits is on its way. */
static bool is_served(const struct coll_page_state *state, const struct coll_page *from,
                      uint32_t rank)
{
    return state->activity == COLL_IN_RECV && from->state.activity == COLL_IN_SEND &&
           from->state.message == state->message && coll_page_blocks(from, rank);
}

/* Ranks of one operation wait for each other's messages for a moment, and that is no cycle. */
static bool is_kept_by(const struct waiting *waiting, uint32_t rank, uint32_t other)
{
    const struct coll_page *page = waiting_page(waiting, rank);
    const struct coll_page *its = waiting_page(waiting, other);
    if (!its || !coll_page_blocks(page, other) || is_served(&page->state, its, rank))
        return false;
    return page->state.activity != COLL_IN_OPERATION || its->state.activity != COLL_IN_OPERATION ||
           page->state.number != its->state.number;
}

/* `size`: nobody that waits itself keeps it. */
static uint32_t find_keeper(const struct waiting *waiting, uint32_t rank)
{
    const uint8_t *blocking = waiting_page(waiting, rank)->state.blocking;
    for (uint32_t other = 0; other < waiting->size; other++)
        if (blocking[other / 8] && is_kept_by(waiting, rank, other))
            return other;
    return waiting->size;
}

static void cycle_drop_others(struct waiting *waiting)
{
    bool has_dropped;
    do {
        has_dropped = false;
        for (uint32_t rank = 0; rank < waiting->size; rank++)
            if (waiting->at[rank] && find_keeper(waiting, rank) == waiting->size) {
                waiting->at[rank] = 0;
                has_dropped = true;
            }
    } while (has_dropped);
}

/* From any rank that is left one comes into a cycle, and then around. It begins with its lowest. */
static void walk_around(const struct waiting *waiting, uint32_t rank, struct coll_cycle *cycle)
{
    for (uint32_t steps = 0; steps < waiting->size; steps++)
        rank = find_keeper(waiting, rank);
    const uint32_t last = rank;
    uint32_t lowest = rank;
    while ((rank = find_keeper(waiting, rank)) != last)
        lowest = rank < lowest ? rank : lowest;
    rank = lowest;
    do {
        cycle->ranks[cycle->count++] = (uint16_t)rank;
        rank = find_keeper(waiting, rank);
    } while (rank != lowest);
}

void coll_cycle_find(const struct coll_seen *job, size_t count, struct coll_cycle *cycle)
{
    struct waiting waiting = {.job = job, .size = count ? job->page.size : 0};
    cycle->count = 0;
    for (size_t i = 0; i < count && i < SW_COLL_RANKS_MAX; i++)
        if (waits_for_sure(&job[i]) && job[i].page.rank < waiting.size)
            waiting.at[job[i].page.rank] = (uint16_t)(i + 1);
    cycle_drop_others(&waiting);
    for (uint32_t rank = 0; rank < waiting.size && !cycle->count; rank++)
        if (waiting.at[rank])
            walk_around(&waiting, rank, cycle);
}

static const struct coll_page *page_of_rank(const struct coll_seen *job, size_t count,
                                            uint32_t rank)
{
    size_t i = 0;
    while (i + 1 < count && job[i].page.rank != rank)
        i++;
    return &job[i].page;
}

static size_t say_wait(const struct coll_page *page, uint32_t other, char *text, size_t room)
{
    const struct coll_page_state *state = &page->state;
    int used;
    if (state->activity == COLL_IN_OPERATION)
        used = snprintf(text, room, "rank %u waits for rank %u in operation %" PRIu64 " (%s)",
                        page->rank, other, state->number,
                        sw_coll_kind_name((enum sw_coll_kind)state->kind));
    else if (state->activity == COLL_IN_OPENING)
        used = snprintf(text, room, "rank %u opens a communicator with rank %u", page->rank, other);
    else
        used =
            snprintf(text, room, "rank %u %s rank %u", page->rank,
                     state->activity == COLL_IN_SEND ? "sends to" : "awaits a message of", other);
    return (size_t)used < room ? (size_t)used : room;
}

void coll_cycle_text(const struct coll_seen *job, size_t count, const struct coll_cycle *cycle,
                     char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, "ranks wait for each other in a cycle: ");
    const uint32_t named = cycle->count > NAMED_MAX ? NAMED_MAX - 1 : cycle->count;
    for (uint32_t i = 0; i < named && used < room; i++) {
        if (i)
            used += (size_t)snprintf(text + used, room - used, ", ");
        if (used < room)
            used += say_wait(page_of_rank(job, count, cycle->ranks[i]),
                             cycle->ranks[(i + 1) % cycle->count], text + used, room - used);
    }
    if (named < cycle->count && used < room)
        snprintf(text + used, room - used, ", and so on by %u more", cycle->count - named);
}
