/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A communicator of those that are left. Each attempt has two epochs of the agreement. In the first
 * one each rank shows its card for the ranks that were left before; if no more are gone by then,
 * they connect. The second one is about whether all have. A death amid it leads to another
 * attempt among the rest.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/comm/agreement.h"
#include "collectives/comm/failure.h"
#include "collectives/comm/open.h"
#include "collectives/comm/page.h"
#include "collectives/comm/peer.h"
#include "collectives/comm/recorder.h"
#include "collectives/comm/send.h"
#include "collectives/comm/vote.h"
#include "collectives/comm/wait.h"
#include "common/base/minmax.h"
#include "common/time/clock.h"

struct shrink {
    struct sw_coll *coll, *child;
    struct coll_set gone; /* that this attempt leaves out */
    bool has_cards;
    uint64_t epoch; /* in which cards are shown */
    uint8_t *cards; /* of those that are left */
    struct sw_coll_error own;
};

/* ---- this rank's side ---- */

static void close_child(struct shrink *shrink)
{
    if (shrink->child)
        sw_coll_close(shrink->child);
    shrink->child = NULL;
}

static void note_unable(struct shrink *shrink, const struct sw_coll_error *why)
{
    shrink->own = *why;
    coll_agree_mark(&shrink->coll->agree, COLL_MARK_UNABLE);
}

static void make_child(struct shrink *shrink)
{
    struct sw_coll *coll = shrink->coll;
    struct sw_coll_error error;
    uint32_t size = 0, rank = 0;
    for (uint32_t i = 0; i < coll->site.size; i++) {
        if (coll_set_has(&shrink->gone, i))
            continue;
        if (i == coll->site.rank)
            rank = size;
        size++;
    }
    memset(coll->shown, 0, sizeof(coll->shown));
    if (coll_open_child(coll, rank, size, &error, &shrink->child))
        note_unable(shrink, &error);
    else
        coll_card_put(coll->shown, &shrink->child->card);
}

/* ---- agreeing ---- */

/* True: the epoch is decided. False: the communicator has failed. */
static bool agree_on_epoch(struct sw_coll *coll)
{
    while (!coll_agreement_step(coll, true)) {
        if (!coll->failure.is_agreeing)
            return false;
        coll_agreement_nap(coll);
    }
    return true;
}

/* Decided: nobody is gone that was there, and nobody has marked it. */
static bool is_as_before(const struct shrink *shrink)
{
    const struct coll_set *decided = &shrink->coll->agree.vote.decided;
    return coll_sets_name_the_same(decided, &shrink->gone) && !decided->marks;
}

/* ---- connecting ---- */

/* A rank shows its card from the epoch of cards on, until the next attempt. */
static bool get_card_of(const struct shrink *shrink, uint32_t rank, uint8_t *card)
{
    const struct sw_coll *coll = shrink->coll;
    struct coll_vote vote;
    if (rank == coll->site.rank) {
        memcpy(card, coll->shown, COLL_CARD_BYTES);
        return true;
    }
    return coll_vote_read(&coll->peers[rank], &vote, card) &&
           (vote.epoch == shrink->epoch ? vote.has_said : vote.epoch > shrink->epoch);
}

/* A decision may be here before all the votes that it was made of. */
static bool get_cards(const struct shrink *shrink)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < shrink->coll->site.size; rank++)
        if (!coll_set_has(&shrink->gone, rank) &&
            !get_card_of(shrink, rank, shrink->cards + (size_t)COLL_CARD_BYTES * count++))
            return false;
    return true;
}

/* True: there are all cards, and it is about to connect. */
static bool has_begun_to_connect(struct shrink *shrink)
{
    struct sw_coll *child = shrink->child;
    struct sw_coll_error error;
    if (shrink->has_cards)
        return true;
    if (!get_cards(shrink))
        return false;
    shrink->has_cards = true;
    if (coll_open_cards(child, shrink->cards, &error))
        note_unable(shrink, &error);
    else if (child->site.size <= COLL_MESH_MAX)
        coll_open_want(child);
    return true;
}

static bool has_lost_a_connection(const struct sw_coll *child)
{
    for (uint32_t rank = 0; rank < child->site.size; rank++)
        if (coll_is_other(child, rank) && child->peers[rank].state == COLL_PEER_ENDED)
            return true;
    return false;
}

/* True: it is connected. */
static bool go_on_connecting(struct shrink *shrink)
{
    struct sw_coll *child = shrink->child;
    bool is_missing[SW_COLL_RANKS_MAX];
    if (!has_begun_to_connect(shrink))
        return false;
    coll_take_events(child, 0);
    coll_send_poll(child);
    if (child->failure.is_set)
        note_unable(shrink, &child->failure.error);
    else if (has_lost_a_connection(child))
        coll_agree_mark(&shrink->coll->agree, COLL_MARK_AGAIN);
    return child->site.size > COLL_MESH_MAX || !coll_open_missing(child, is_missing);
}

/* Until it is connected, or of no use. True: the next epoch is decided already. */
static bool connect_child(struct shrink *shrink)
{
    struct sw_coll *coll = shrink->coll;
    const struct coll_set *set = &coll->agree.vote.set;
    if (shrink->child->site.size == 1)
        return false;
    while (!go_on_connecting(shrink)) {
        if (coll_agreement_step(coll, false))
            return true;
        if (!coll->failure.is_agreeing || !coll_sets_name_the_same(set, &shrink->gone) ||
            set->marks)
            break;
        coll_take_events(coll, 1);
    }
    return false;
}

/* ---- all of it ---- */

static enum sw_coll_status say_shrink_failed(const struct shrink *shrink,
                                             struct sw_coll_error *error)
{
    const struct sw_coll_error *why = &shrink->own;
    return why->status ? coll_say(error, why->status, "%s", why->text)
                       : coll_say(error, SW_COLL_SYSTEM,
                                  "another rank could not make its part of the communicator");
}

/* AGAIN: others are gone by now. */
static enum sw_coll_status shrink_once(struct shrink *shrink, struct sw_coll_error *error)
{
    struct sw_coll *coll = shrink->coll;
    shrink->gone = coll->agree.vote.decided;
    shrink->epoch = coll->agree.vote.epoch;
    shrink->has_cards = false;
    if (coll_sets_name_the_same(&coll->agree.vote.set, &shrink->gone))
        make_child(shrink);
    bool is_decided = agree_on_epoch(coll);
    if (is_decided && is_as_before(shrink) && !shrink->child) {
        coll_fail_here(coll, SW_COLL_PROTOCOL, "the others have decided what it has not said");
        is_decided = false;
    }
    if (is_decided && is_as_before(shrink))
        is_decided = connect_child(shrink) || (coll->failure.is_agreeing && agree_on_epoch(coll));
    if (is_decided && is_as_before(shrink))
        return SW_COLL_OK;
    close_child(shrink);
    if (!is_decided) {
        coll_failure_await(coll);
        return coll_say(error, coll->failure.error.status, "%s", coll->failure.error.text);
    }
    return coll->agree.vote.decided.marks & COLL_MARK_UNABLE ? say_shrink_failed(shrink, error)
                                                             : SW_COLL_AGAIN;
}

static enum sw_coll_status shrink_to_the_end(struct shrink *shrink, uint64_t deadline_ns,
                                             struct sw_coll_error *error)
{
    struct coll_failure *failure = &shrink->coll->failure;
    enum sw_coll_status status;
    failure->is_done = failure->is_telling = false;
    failure->is_agreeing = true;
    failure->began_ns = mover_now_ns();
    /* Where it has passed, the others were given some time more when ranks were left out. */
    failure->deadline_ns = mover_max_u64(deadline_ns, failure->deadline_ns);
    failure->patience = 0;
    do
        status = shrink_once(shrink, error);
    while (status == SW_COLL_AGAIN);
    failure->is_agreeing = false;
    failure->is_done = true;
    return status;
}

static void revoke_until(struct sw_coll *coll, uint64_t deadline_ns)
{
    if (!coll->failure.is_set)
        coll_agree_mark(&coll->agree, COLL_MARK_REVOKED);
    coll_agreement_begin(coll, deadline_ns);
}

enum sw_coll_status sw_coll_shrink(struct sw_coll *coll, uint64_t deadline_ns,
                                   struct sw_coll_error *error, struct sw_coll **out)
{
    struct shrink shrink = {.coll = coll};
    const uint64_t began_ns = mover_now_ns();
    *out = NULL;
    if (mover_is_forked(&coll->guard))
        return coll_say(error, SW_COLL_FORKED, "%s", sw_coll_status_text(SW_COLL_FORKED));
    if (!deadline_ns)
        deadline_ns = sw_coll_deadline_ms(coll->options.timeout_ms);
    revoke_until(coll, deadline_ns);
    if (coll->failure.is_done) /* ranks may still agree on that their calls differ */
        coll->failure.deadline_ns = deadline_ns;
    coll_failure_await(coll);
    if (coll->failure.is_over)
        return coll_say(error, SW_COLL_BROKEN, "the connections have ended: %.200s",
                        coll->failure.error.text);
    shrink.cards = calloc(coll->site.size, COLL_CARD_BYTES);
    if (!shrink.cards)
        return coll_say(error, SW_COLL_NO_MEMORY, "out of memory");
    const enum sw_coll_status status = shrink_to_the_end(&shrink, deadline_ns, error);
    free(shrink.cards);
    coll_page_refresh(coll, mover_now_ns(), true);
    if (status)
        return status;
    *out = shrink.child;
    coll_page_open(shrink.child, coll);
    coll_recorder_child(coll, COLL_RECORDED_SHRINK, shrink.child, 0, 0, began_ns);
    return SW_COLL_OK;
}

void sw_coll_revoke(struct sw_coll *coll)
{
    if (mover_is_forked(&coll->guard))
        return;
    revoke_until(coll, 0);
    coll_look(coll);
}

enum sw_coll_status sw_coll_error(struct sw_coll *coll, struct sw_coll_error *error)
{
    const struct coll_failure *failure = &coll->failure;
    if (mover_is_forked(&coll->guard))
        return coll_say(error, SW_COLL_FORKED, "%s", sw_coll_status_text(SW_COLL_FORKED));
    coll_look(coll);
    if (!failure->is_set)
        return SW_COLL_OK;
    return failure->is_done ? coll_say(error, failure->error.status, "%s", failure->error.text)
                            : coll_say(error, SW_COLL_AGAIN, "ranks agree on who is gone");
}
