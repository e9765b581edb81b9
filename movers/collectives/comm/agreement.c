/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/agreement.h"

#include <stdio.h>
#include <string.h>

#include "collectives/comm/dump.h"
#include "collectives/comm/failure.h"
#include "collectives/comm/page.h"
#include "collectives/comm/peer.h"
#include "collectives/comm/request.h"
#include "collectives/comm/send.h"
#include "collectives/comm/vote.h"
#include "collectives/comm/wait.h"
#include "collectives/core/ranks.h"
#include "common/base/minmax.h"
#include "common/time/clock.h"

enum {
    AGREE_MS = 5000,   /* however near the deadline is */
    PROMPT_MS = 1000,  /* so long it looks again after a millisecond */
    NAP_LATER_MS = 10, /* and then after ten */
    LATE_MS = 500,     /* so long a rank that is left out may take to confirm that it is told */
    PATIENCE_MAX = 3,
};

static uint64_t find_deadline(const struct sw_coll *coll, uint64_t now_ns)
{
    const uint64_t usual_ns = now_ns + coll->options.timeout_ms * NS_PER_MS;
    const uint64_t posted_ns = coll_requests_deadline_ns(coll);
    return mover_max_u64(posted_ns ? posted_ns : usual_ns, now_ns + AGREE_MS * NS_PER_MS);
}

void coll_agreement_begin(struct sw_coll *coll, uint64_t deadline_ns)
{
    struct coll_failure *failure = &coll->failure;
    if (failure->is_set)
        return;
    coll_page_freeze(coll);
    failure->is_set = failure->is_agreeing = true;
    failure->is_telling = false;
    failure->began_ns = mover_now_ns();
    failure->deadline_ns = deadline_ns ? deadline_ns : find_deadline(coll, failure->began_ns);
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (coll_is_other(coll, rank)) {
            coll_send_forget(&coll->peers[rank]);
            coll_peer_want(&coll->peers[rank]);
        }
}

/* ---- hearing ---- */

static void leave_as_outcast(struct sw_coll *coll, uint32_t by)
{
    coll_fail_here(
        coll, SW_COLL_RANK_GONE,
        "rank %u has lost the connection with this rank, and the others go on without it", by);
    coll->failure.is_outcast = true;
}

static bool take_vote(struct coll_peer *peer)
{
    struct sw_coll *coll = peer->coll;
    uint8_t card[COLL_CARD_BYTES];
    struct coll_vote vote;
    if (!coll_vote_read(peer, &vote, card))
        return false;
    switch (coll_agree_hear(&coll->agree, peer->rank, &vote)) {
    case COLL_AGREE_WAITS:
        return false;
    case COLL_AGREE_DECIDED:
        return true;
    case COLL_AGREE_ABSURD:
        coll_fail_here(coll, SW_COLL_PROTOCOL, "rank %u says nonsense about who is gone",
                       peer->rank);
        return false;
    case COLL_AGREE_OUTCAST:
        leave_as_outcast(coll, peer->rank);
        return false;
    }
    return false;
}

/* All that came by a connection is heard before its end counts. True: a decision. */
static bool hear_peer(struct coll_peer *peer)
{
    struct sw_coll *coll = peer->coll;
    const bool is_lost = coll_peer_has_closed(peer);
    const bool is_gone = coll_set_has(&coll->agree.vote.set, peer->rank);
    if ((is_gone || is_lost) && (peer->state != COLL_PEER_ENDED || peer->connection.events))
        coll_peer_tear_down(peer);
    if (is_gone || coll_failure_is_told_by(peer))
        return false;
    if (take_vote(peer))
        return true;
    if (is_lost)
        coll_agree_lose(&coll->agree, peer->rank);
    return false;
}

static bool hear_all(struct sw_coll *coll)
{
    for (uint32_t rank = 0; coll->failure.is_agreeing && rank < coll->site.size; rank++)
        if (coll_is_other(coll, rank) && hear_peer(&coll->peers[rank]))
            return true;
    return false;
}

/* ---- saying ---- */

/* This rank's reads and writes of others' buffers have completed. */
static bool has_settled(const struct sw_coll *coll)
{
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (coll_is_other(coll, rank) && coll_send_has_moves(&coll->peers[rank]))
            return false;
    return true;
}

static void say_to_all(struct sw_coll *coll)
{
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (coll_is_other(coll, rank) && !coll_set_has(&coll->agree.vote.set, rank))
            coll_vote_send(&coll->peers[rank]);
}

/* What was decided comes to all that are there, also if this rank ends now. */
static bool has_told_all(const struct sw_coll *coll)
{
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (coll_is_other(coll, rank) && !coll_set_has(&coll->agree.vote.set, rank) &&
            !coll_peer_has_closed(&coll->peers[rank]) && !coll_vote_is_there(&coll->peers[rank]))
            return false;
    return true;
}

/* ---- leaving out ---- */

static struct sw_coll_error why_late(const struct coll_vote *vote)
{
    struct sw_coll_error error;
    if (vote->set.judge)
        coll_say(&error, vote->cause.status, "%s", vote->cause.text);
    else
        coll_say(&error, SW_COLL_TIMEOUT, "the others have gone on without this rank");
    return error;
}

static bool is_late_unconfirmed(const struct sw_coll *coll)
{
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        const struct coll_peer *peer = &coll->peers[rank];
        if (coll_set_has(&coll->failure.late, rank) && peer->state == COLL_PEER_UP &&
            peer->signals_done != peer->signals_posted)
            return true;
    }
    return false;
}

/* They are told before their connections end, or they would take this rank for gone. */
static void leave_late_out(struct sw_coll *coll)
{
    struct coll_failure *failure = &coll->failure;
    const struct sw_coll_error why = why_late(&coll->agree.vote);
    const uint64_t until_ns = mover_now_ns() + LATE_MS * NS_PER_MS;
    if (!coll_set_count(&failure->late))
        return;
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (coll_set_has(&failure->late, rank))
            coll_failure_tell_late(&coll->peers[rank], &why);
    while (is_late_unconfirmed(coll) && mover_now_ns() < until_ns)
        if (!coll_send_poll(coll) && mover_queue_arm(&coll->queue))
            coll_take_events(coll, 1);
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (coll_set_has(&failure->late, rank))
            coll_agree_lose(&coll->agree, rank);
    failure->late = (struct coll_set){0};
}

/* The deadline has passed: the others go on without those that say nothing. */
static void give_up(struct sw_coll *coll)
{
    struct coll_failure *failure = &coll->failure;
    bool is_awaited[SW_COLL_RANKS_MAX];
    char ranks[160], text[COLL_CAUSE_TEXT];
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        is_awaited[rank] = coll_agree_awaits(&coll->agree, rank) ||
                           (coll_is_other(coll, rank) && coll_send_has_moves(&coll->peers[rank]));
        if (is_awaited[rank])
            coll_set_add(&failure->late, rank);
    }
    coll_ranks_text(is_awaited, coll->site.size, UINT32_MAX, ranks, sizeof(ranks));
    snprintf(text, sizeof(text), "%s did not say who is gone, and the deadline has passed", ranks);
    if (coll->agree.vote.epoch == 1)
        coll_agree_judge(&coll->agree, COLL_JUDGE_RANK + coll->site.rank, SW_COLL_TIMEOUT, text);
    failure->deadline_ns = mover_now_ns() + AGREE_MS * NS_PER_MS;
    if (failure->patience++ < PATIENCE_MAX)
        return;
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        coll->peers[rank].is_gone = coll_set_has(&coll->agree.vote.set, rank);
    coll_fail(coll, SW_COLL_TIMEOUT, "%s", text);
}

/* ---- both ---- */

static bool is_decided(struct sw_coll *coll, bool joins)
{
    struct coll_agree *agree = &coll->agree;
    if (hear_all(coll))
        return true;
    if (!coll->failure.is_agreeing)
        return false;
    if (joins && !agree->vote.has_said && has_settled(coll))
        coll_agree_join(agree);
    return coll_agree_go(agree) == COLL_AGREE_DECIDED;
}

/* Calls differ: nobody has begun to move data. So nothing touches a buffer any more, and there is
 * nothing to wait for; that all are in agreement is for those that shrink it. */
static bool is_calm(const struct sw_coll *coll)
{
    const struct coll_vote *vote = &coll->agree.vote;
    return vote->epoch == 1 && vote->has_said && vote->set.judge == COLL_JUDGE_ALL &&
           list_is_empty(&coll->transfers);
}

static void end_calmly(struct sw_coll *coll)
{
    const struct coll_cause *cause = &coll->agree.vote.cause;
    coll_say(&coll->failure.error, cause->status, "%s", cause->text);
    coll->failure.is_done = true;
    coll->failure.deadline_ns = UINT64_MAX;
    coll_requests_fail(coll);
    coll_dump_failure(coll);
}

/* One more is gone: all have to say so anew, and get some time more for that. */
static void extend_deadline(struct sw_coll *coll, uint64_t now_ns)
{
    struct coll_failure *failure = &coll->failure;
    const uint32_t known = coll_set_count(&coll->agree.vote.set);
    if (known != failure->known)
        failure->deadline_ns = mover_max_u64(failure->deadline_ns, now_ns + AGREE_MS * NS_PER_MS);
    failure->known = known;
}

bool coll_agreement_step(struct sw_coll *coll, bool joins)
{
    struct coll_failure *failure = &coll->failure;
    leave_late_out(coll);
    coll_send_poll(coll);
    if (!failure->is_telling && is_decided(coll, joins))
        failure->is_telling = true;
    const uint64_t now_ns = mover_now_ns();
    extend_deadline(coll, now_ns);
    const bool is_late = now_ns >= failure->deadline_ns;
    if (!failure->is_agreeing)
        return false;
    coll_page_refresh(coll, now_ns, false);
    say_to_all(coll);
    if (failure->is_telling && (is_late || has_told_all(coll))) {
        failure->is_telling = false;
        return true;
    }
    if (is_late && !failure->is_telling)
        give_up(coll);
    else if (!failure->is_done && is_calm(coll))
        end_calmly(coll);
    return false;
}

void coll_agreement_finish(struct sw_coll *coll)
{
    const struct coll_set *decided = &coll->agree.vote.decided;
    struct coll_failure *failure = &coll->failure;
    bool is_gone[SW_COLL_RANKS_MAX];
    char text[160];
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        is_gone[rank] = coll->peers[rank].is_gone = coll_set_has(decided, rank);
        if (is_gone[rank])
            coll_peer_tear_down(&coll->peers[rank]);
    }
    coll_ranks_text(is_gone, coll->site.size, UINT32_MAX, text, sizeof(text));
    failure->is_agreeing = false;
    if (failure->is_done) /* calmly */
        return;
    failure->is_done = true;
    if (decided->judge)
        coll_say(&failure->error, coll->agree.vote.cause.status, "%s", coll->agree.vote.cause.text);
    else if (coll_set_count(decided))
        coll_say(&failure->error, SW_COLL_RANK_GONE, "%s died, or closed before the others", text);
    else
        coll_say(&failure->error, SW_COLL_REVOKED, "a rank has revoked the communicator");
    coll_requests_fail(coll);
    coll_page_refresh(coll, mover_now_ns(), true);
    coll_dump_failure(coll);
}

void coll_agreement_nap(struct sw_coll *coll)
{
    const uint64_t began_ns = coll->failure.began_ns;
    const bool is_prompt = mover_now_ns() - began_ns < PROMPT_MS * NS_PER_MS;
    if (mover_queue_arm(&coll->queue))
        coll_take_events(coll, is_prompt ? 1 : NAP_LATER_MS);
}
