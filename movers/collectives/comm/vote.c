/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/vote.h"

#include <string.h>

#include "collectives/comm/failure.h"
#include "collectives/comm/send.h"
#include "common/base/bytes.h"

enum {
    AT_EPOCH = 0,
    AT_HAS_SAID = 8,
    AT_MARKS = 12,
    AT_DECIDED_MARKS = 16,
    AT_STATUS = 20,
    AT_JUDGE = 24,
    AT_DECIDED_JUDGE = 28,
    AT_CARD = 32,
    AT_SET = 128,
    AT_DECIDED = 256,
    AT_TEXT = 384,
};

static_assert((int)AT_TEXT + (int)COLL_CAUSE_TEXT == (int)COLL_VOTE_BYTES &&
                  (int)COLL_CAUSE_TEXT == (int)COLL_TEXT_BYTES,
              "they have room");

static void put_set(uint8_t *at, const struct coll_set *set)
{
    for (uint32_t i = 0; i < COLL_SET_WORDS; i++)
        put_le64(at + 8 * i, set->words[i]);
}

static struct coll_set get_set(const uint8_t *at, uint32_t marks, uint32_t judge)
{
    struct coll_set set = {.marks = marks, .judge = judge};
    for (uint32_t i = 0; i < COLL_SET_WORDS; i++)
        set.words[i] = get_le64(at + 8 * i);
    return set;
}

static void put_vote(uint8_t *at, const struct coll_vote *vote, const uint8_t *card)
{
    memset(at, 0, COLL_VOTE_BYTES);
    put_le64(at + AT_EPOCH, vote->epoch);
    put_le32(at + AT_HAS_SAID, vote->has_said);
    put_le32(at + AT_MARKS, vote->set.marks);
    put_le32(at + AT_DECIDED_MARKS, vote->decided.marks);
    put_le32(at + AT_STATUS, vote->cause.status);
    put_le32(at + AT_JUDGE, vote->set.judge);
    put_le32(at + AT_DECIDED_JUDGE, vote->decided.judge);
    memcpy(at + AT_TEXT, vote->cause.text, COLL_CAUSE_TEXT);
    memcpy(at + AT_CARD, card, COLL_CARD_BYTES);
    put_set(at + AT_SET, &vote->set);
    put_set(at + AT_DECIDED, &vote->decided);
}

/* The one before has left the outbox, whose word of the number is the same for all. */
void coll_vote_send(struct coll_peer *peer)
{
    const struct sw_coll *coll = peer->coll;
    const uint64_t number = peer->votes + 1;
    if (peer->told_version == coll->agree.version || peer->votes_busy > peer->done)
        return;
    put_vote(peer->outbox + coll_vote_at(number), &coll->agree.vote, coll->shown);
    if (!coll_send_vote(peer, number))
        return;
    peer->votes = number;
    peer->told_version = coll->agree.version;
}

bool coll_vote_is_there(const struct coll_peer *peer)
{
    return peer->told_version == peer->coll->agree.version && peer->votes_busy <= peer->done;
}

/* While the newest is read, the one after it may be on its way to the other place. */
bool coll_vote_read(const struct coll_peer *peer, struct coll_vote *vote,
                    uint8_t card[COLL_CARD_BYTES])
{
    uint8_t bytes[COLL_VOTE_BYTES];
    const uint64_t number = coll_word_read(peer->inbox + COLL_AT_VOTE);
    if (!number)
        return false;
    memcpy(bytes, peer->inbox + coll_vote_at(number), sizeof(bytes));
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (coll_word_read(peer->inbox + COLL_AT_VOTE) != number)
        return false;
    vote->epoch = get_le64(bytes + AT_EPOCH);
    vote->has_said = get_le32(bytes + AT_HAS_SAID) & 1;
    vote->set = get_set(bytes + AT_SET, get_le32(bytes + AT_MARKS), get_le32(bytes + AT_JUDGE));
    vote->decided = get_set(bytes + AT_DECIDED, get_le32(bytes + AT_DECIDED_MARKS),
                            get_le32(bytes + AT_DECIDED_JUDGE));
    vote->cause.status = (enum sw_coll_status)get_le32(bytes + AT_STATUS);
    coll_failure_get_text(vote->cause.text, bytes + AT_TEXT);
    memcpy(card, bytes + AT_CARD, COLL_CARD_BYTES);
    return true;
}
