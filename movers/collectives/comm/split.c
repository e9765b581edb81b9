/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parts of a communicator. All that ranks tell each other goes by operations of the parent: colors
 * and keys, then cards, and in the end whether each rank has all its connections. So a rank that
 * dies amid it, in whichever part, ends it on all ranks.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/comm/failure.h"
#include "collectives/comm/open.h"
#include "collectives/comm/page.h"
#include "collectives/comm/recorder.h"
#include "collectives/comm/send.h"
#include "collectives/comm/wait.h"
#include "common/time/clock.h"

struct place {
    int32_t color, key;
};

struct split {
    struct sw_coll *coll, *child;
    uint64_t deadline_ns;
    struct place *places;   /* of each rank */
    uint8_t *cards, *group; /* of each rank; of those of this part, in their order */
    uint32_t *statuses;     /* of each rank */
    uint32_t rank, size;    /* in the part */
    struct sw_coll_error own;
};

static struct sw_coll_call make_gather(const void *mine, void *all, uint64_t bytes)
{
    return (struct sw_coll_call){
        .kind = SW_COLL_ALL_GATHER, .type = SW_COLL_U8, .send = mine, .recv = all, .count = bytes};
}

static enum sw_coll_status gather_from_all(struct split *split, const void *mine, void *all,
                                           uint64_t bytes, struct sw_coll_error *error)
{
    const struct sw_coll_call call = make_gather(mine, all, bytes);
    return sw_coll_run(split->coll, &call, split->deadline_ns, error);
}

/* ---- the part ---- */

static bool is_before(const struct split *split, uint32_t one, uint32_t other)
{
    const int32_t key = split->places[one].key, other_key = split->places[other].key;
    return key != other_key ? key < other_key : one < other;
}

/* How many ranks of that one's color come before it. */
static uint32_t count_before(const struct split *split, uint32_t rank)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < split->coll->site.size; i++)
        count += i != rank && split->places[i].color == split->places[rank].color &&
                 is_before(split, i, rank);
    return count;
}

static bool is_in_part(const struct split *split, uint32_t rank)
{
    return split->places[rank].color == split->places[split->coll->site.rank].color;
}

static void find_part(struct split *split)
{
    for (uint32_t i = 0; i < split->coll->site.size; i++)
        split->size += is_in_part(split, i);
    split->rank = count_before(split, split->coll->site.rank);
}

static void open_part(struct split *split, uint8_t card[COLL_CARD_BYTES])
{
    memset(card, 0, COLL_CARD_BYTES);
    if (split->places[split->coll->site.rank].color < 0)
        return;
    if (!coll_open_child(split->coll, split->rank, split->size, &split->own, &split->child))
        coll_card_put(card, &split->child->card);
}

static void close_part(struct split *split)
{
    sw_coll_close(split->child);
    split->child = NULL;
}

/* ---- connections ---- */

static void note_end_of_connecting(struct split *split)
{
    const struct coll_failure *failure = &split->child->failure;
    if (failure->is_set && !failure->is_agreeing)
        split->own = failure->error;
    else if (failure->is_set || split->coll->failure.is_set)
        coll_say(&split->own, SW_COLL_RANK_GONE, "a rank has ended its connections");
    else
        coll_say(&split->own, SW_COLL_TIMEOUT, "the connections did not come about in time");
}

/* Those of the part are connected, or it has failed here, or the parent has. One that has failed
 * misses none any more. */
static void connect_part(struct split *split)
{
    struct sw_coll *child = split->child;
    bool is_missing[SW_COLL_RANKS_MAX];
    coll_open_want(child);
    while (!child->failure.is_set && coll_open_missing(child, is_missing)) {
        if (split->coll->failure.is_set || mover_now_ns() >= split->deadline_ns) {
            note_end_of_connecting(split);
            return;
        }
        coll_take_events(child, 1);
        coll_look(child);
        coll_look(split->coll);
    }
    if (child->failure.is_set)
        note_end_of_connecting(split);
}

/* False: a rank has none, and will say why. */
static bool sort_cards(struct split *split)
{
    static const uint8_t none[COLL_CARD_BYTES];
    for (uint32_t i = 0; i < split->coll->site.size; i++) {
        const uint8_t *card = split->cards + (size_t)COLL_CARD_BYTES * i;
        if (!is_in_part(split, i))
            continue;
        if (!memcmp(card, none, sizeof(none)))
            return false;
        memcpy(split->group + (size_t)COLL_CARD_BYTES * count_before(split, i), card,
               COLL_CARD_BYTES);
    }
    return true;
}

static void join_part(struct split *split)
{
    struct sw_coll *child = split->child;
    if (child->site.size > 1 && sort_cards(split) &&
        !coll_open_cards(child, split->group, &split->own) && child->site.size <= COLL_MESH_MAX)
        connect_part(split);
}

/* ---- all of it ---- */

/* The lowest rank that has failed by itself, else one that has lost its connections by that.
 * `size`: none has. */
static uint32_t find_which_failed(const struct split *split)
{
    const uint32_t size = split->coll->site.size;
    uint32_t found = size;
    for (uint32_t i = size; i-- > 0;)
        if (split->statuses[i] == SW_COLL_RANK_GONE)
            found = i;
    for (uint32_t i = size; i-- > 0;)
        if (split->statuses[i] && split->statuses[i] != SW_COLL_RANK_GONE)
            found = i;
    return found;
}

/* What another rank says may be anything. */
static enum sw_coll_status said_status(uint32_t said)
{
    return said > SW_COLL_AGAIN && said <= SW_COLL_REVOKED ? (enum sw_coll_status)said
                                                           : SW_COLL_PROTOCOL;
}

static enum sw_coll_status say_which_failed(const struct split *split, uint32_t rank,
                                            struct sw_coll_error *error)
{
    const enum sw_coll_status status = said_status(split->statuses[rank]);
    return rank == split->coll->site.rank
               ? coll_say(error, status, "%s", split->own.text)
               : coll_say(error, status, "rank %u: %s", rank, sw_coll_status_text(status));
}

/* The last operation. Once the parent has failed, the part is closed at once: ranks that have ended
 * this operation well may wait in it already, and the parent's agreement waits for these. */
static enum sw_coll_status gather_statuses(struct split *split, struct sw_coll_error *error)
{
    struct sw_coll *coll = split->coll;
    struct sw_coll_request *request;
    struct coll_waiting waiting = {0};
    const uint32_t own = split->own.status;
    const struct sw_coll_call call = make_gather(&own, split->statuses, sizeof(own));
    const enum sw_coll_status status =
        sw_coll_post(coll, &call, split->deadline_ns, error, &request);
    if (status)
        return status;
    while (request->status == SW_COLL_AGAIN && !coll->failure.is_set) {
        coll_go_on(coll);
        if (request->status == SW_COLL_AGAIN)
            coll_wait_turn(coll, &waiting);
    }
    if (request->status == SW_COLL_AGAIN)
        close_part(split);
    return sw_coll_wait(request, error);
}

/* Where a part has lost a connection, a rank has died as a rule, and may have ended the last
 * operation before that. So the parent is asked, by one more, and all ranks have the same words. */
static enum sw_coll_status say_how_it_went(const struct split *split, struct sw_coll_error *error)
{
    static const struct sw_coll_call barrier = {.kind = SW_COLL_BARRIER};
    const uint32_t rank = find_which_failed(split);
    enum sw_coll_status status = SW_COLL_OK;
    if (rank == split->coll->site.size)
        return SW_COLL_OK;
    if (split->statuses[rank] == SW_COLL_RANK_GONE)
        status = sw_coll_run(split->coll, &barrier, split->deadline_ns, error);
    return status ? status : say_which_failed(split, rank, error);
}

static enum sw_coll_status split_into_parts(struct split *split, const struct place *mine,
                                            struct sw_coll_error *error)
{
    uint8_t card[COLL_CARD_BYTES];
    enum sw_coll_status status = gather_from_all(split, mine, split->places, sizeof(*mine), error);
    if (status)
        return status;
    find_part(split);
    open_part(split, card);
    status = gather_from_all(split, card, split->cards, sizeof(card), error);
    if (status)
        return status;
    if (split->child)
        join_part(split);
    status = gather_statuses(split, error);
    return status ? status : say_how_it_went(split, error);
}

enum sw_coll_status sw_coll_split(struct sw_coll *coll, int32_t color, int32_t key,
                                  uint64_t deadline_ns, struct sw_coll_error *error,
                                  struct sw_coll **out)
{
    const struct place mine = {color < 0 ? -1 : color, key};
    const uint32_t size = coll->site.size;
    const uint64_t began_ns = mover_now_ns();
    *out = NULL;
    if (coll->group_depth)
        return coll_say(error, SW_COLL_INVALID,
                        "split waits for all ranks: it cannot be in a group");
    struct split split = {
        .coll = coll,
        .deadline_ns = deadline_ns ? deadline_ns : sw_coll_deadline_ms(coll->options.timeout_ms),
        .places = calloc(size, sizeof(*split.places)),
        .cards = calloc(size, COLL_CARD_BYTES),
        .group = calloc(size, COLL_CARD_BYTES),
        .statuses = calloc(size, sizeof(*split.statuses))};
    enum sw_coll_status status = split.places && split.cards && split.group && split.statuses
                                     ? split_into_parts(&split, &mine, error)
                                     : coll_say(error, SW_COLL_NO_MEMORY, "out of memory");
    if (status)
        close_part(&split);
    if (split.child)
        coll_page_open(split.child, coll);
    if (!status)
        coll_recorder_child(coll, COLL_RECORDED_SPLIT, split.child, color, key, began_ns);
    *out = split.child;
    free(split.places);
    free(split.cards);
    free(split.group);
    free(split.statuses);
    return status;
}
