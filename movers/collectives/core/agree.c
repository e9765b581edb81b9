/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/core/agree.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- sets ---- */

uint32_t coll_set_count(const struct coll_set *set)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < COLL_SET_WORDS; i++)
        count += (uint32_t)__builtin_popcountll(set->words[i]);
    return count;
}

bool coll_sets_name_the_same(const struct coll_set *one, const struct coll_set *other)
{
    return !memcmp(one->words, other->words, sizeof(one->words));
}

static bool is_lower_judge(uint32_t judge, uint32_t other)
{
    return judge && (!other || judge < other);
}

/* True: it has grown. */
static bool merge_sets(struct coll_set *set, const struct coll_set *more)
{
    const struct coll_set before = *set;
    for (uint32_t i = 0; i < COLL_SET_WORDS; i++)
        set->words[i] |= more->words[i];
    set->marks |= more->marks;
    if (is_lower_judge(more->judge, set->judge))
        set->judge = more->judge;
    return set->marks != before.marks || set->judge != before.judge ||
           !coll_sets_name_the_same(set, &before);
}

static bool is_set_sane(const struct coll_set *set, uint32_t size)
{
    for (uint32_t rank = size; rank < SW_COLL_RANKS_MAX; rank++)
        if (coll_set_has(set, rank))
            return false;
    return set->marks < COLL_MARKS && set->judge < COLL_JUDGE_RANK + size;
}

static bool is_cause_sane(const struct coll_vote *vote)
{
    const enum sw_coll_status status = vote->cause.status;
    return (!vote->set.judge && !vote->decided.judge) || status == SW_COLL_MISMATCH ||
           status == SW_COLL_TIMEOUT;
}

/* ---- the machine ---- */

void coll_agree_init(struct coll_agree *agree, uint32_t rank, uint32_t size,
                     struct coll_heard *heard)
{
    assert(rank < size && size <= SW_COLL_RANKS_MAX);
    memset(heard, 0, size * sizeof(*heard));
    *agree = (struct coll_agree){.rank = rank, .size = size, .vote.epoch = 1, .heard = heard};
}

void coll_agree_join(struct coll_agree *agree)
{
    assert(!agree->vote.has_said);
    agree->vote.has_said = true;
    agree->version++;
}

/* What was said is not all any more. */
static void note_growth(struct coll_agree *agree)
{
    if (agree->vote.has_said)
        agree->version++;
}

void coll_agree_mark(struct coll_agree *agree, enum coll_mark mark)
{
    if (agree->vote.set.marks & mark)
        return;
    agree->vote.set.marks |= mark;
    note_growth(agree);
}

void coll_agree_judge(struct coll_agree *agree, uint32_t judge, enum sw_coll_status status,
                      const char *text)
{
    struct coll_vote *vote = &agree->vote;
    assert(vote->epoch == 1);
    if (!is_lower_judge(judge, vote->set.judge))
        return;
    vote->set.judge = judge;
    vote->cause.status = status;
    snprintf(vote->cause.text, sizeof(vote->cause.text), "%s", text);
    note_growth(agree);
}

void coll_agree_lose(struct coll_agree *agree, uint32_t rank)
{
    assert(rank < agree->size && rank != agree->rank);
    if (coll_set_has(&agree->vote.set, rank))
        return;
    coll_set_add(&agree->vote.set, rank);
    note_growth(agree);
}

/* Ranks that were lost in this epoch stay so in the next one. */
static enum coll_agree_status decide_set(struct coll_agree *agree, const struct coll_set *decided)
{
    struct coll_vote *vote = &agree->vote;
    vote->decided = *decided;
    merge_sets(&vote->set, decided);
    vote->set.marks = vote->set.judge = 0;
    vote->epoch++;
    vote->has_said = false;
    agree->version++;
    return COLL_AGREE_DECIDED;
}

static enum coll_agree_status hear_set(struct coll_agree *agree, uint32_t rank,
                                       const struct coll_vote *vote)
{
    const struct coll_set *set = &vote->set;
    if (coll_set_has(set, agree->rank))
        return COLL_AGREE_OUTCAST;
    if (is_lower_judge(set->judge, agree->vote.set.judge))
        agree->vote.cause = vote->cause;
    if (merge_sets(&agree->vote.set, set))
        note_growth(agree);
    agree->heard[rank] =
        (struct coll_heard){agree->vote.epoch, coll_set_count(set), set->marks, set->judge};
    return COLL_AGREE_WAITS;
}

enum coll_agree_status coll_agree_hear(struct coll_agree *agree, uint32_t rank,
                                       const struct coll_vote *vote)
{
    const uint64_t epoch = agree->vote.epoch;
    assert(rank < agree->size && rank != agree->rank);
    if (coll_set_has(&agree->vote.set, rank))
        return COLL_AGREE_WAITS;
    if (!vote->epoch || !is_set_sane(&vote->set, agree->size) ||
        !is_set_sane(&vote->decided, agree->size) || !is_cause_sane(vote) ||
        coll_set_has(&vote->set, rank))
        return COLL_AGREE_ABSURD;
    if (vote->epoch > epoch && coll_set_has(&vote->decided, agree->rank))
        return COLL_AGREE_OUTCAST;
    if (vote->epoch > epoch + 1)
        return COLL_AGREE_ABSURD;
    if (vote->epoch == epoch + 1) {
        if (vote->decided.judge)
            agree->vote.cause = vote->cause;
        return decide_set(agree, &vote->decided);
    }
    return vote->epoch == epoch && vote->has_said ? hear_set(agree, rank, vote) : COLL_AGREE_WAITS;
}

/* What it has said is in this rank's set. So both are alike if they have as many. */
bool coll_agree_awaits(const struct coll_agree *agree, uint32_t rank)
{
    const struct coll_vote *vote = &agree->vote;
    const struct coll_heard *heard = &agree->heard[rank];
    return rank != agree->rank && !coll_set_has(&vote->set, rank) &&
           (heard->epoch != vote->epoch || heard->count != coll_set_count(&vote->set) ||
            heard->marks != vote->set.marks || heard->judge != vote->set.judge);
}

enum coll_agree_status coll_agree_go(struct coll_agree *agree)
{
    if (!agree->vote.has_said)
        return COLL_AGREE_WAITS;
    for (uint32_t rank = 0; rank < agree->size; rank++)
        if (coll_agree_awaits(agree, rank))
            return COLL_AGREE_WAITS;
    const struct coll_set decided = agree->vote.set;
    return decide_set(agree, &decided);
}
