/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the ranks that are left agree on which ones are gone, as a machine: no clock, no I/O, no
 * memory of its own.
 *
 * Each rank has a set: the ranks that it knows to be gone, and marks. It says that set to all
 * others that are not in it, and adds to it what it hears; then it says it anew. So sets only grow.
 * It decides once all that are not in its set have said just this set. Then it says what it has
 * decided, and no more in this epoch; whoever hears that, of a rank that is not in its own set,
 * decides the same. Decisions are numbered: an epoch ends with one, and the next one begins.
 *
 * No two ranks decide different sets unless one of them is gone itself. Say x and y are not, x goes
 * by the decision D of a, and y by the smaller one E of b. All that are not in D have said D, after
 * E: so y has, and a has not decided E itself. So y took E over after it had said D, hence from a
 * rank that is not in D, which has said D, too; and so on to b. But b said nothing after E.
 *
 * In the first epoch a rank may say the cause, too: why all ends, in words that all are to have.
 * The one of the lowest number counts, which is part of the set. A rank may be put into the set
 * since it is late, not gone; for the others that makes no difference.
 *
 * What a rank has said is heard before it is lost, or a decision that it has died or left with
 * might be missed.
 */
#ifndef SW_COLLECTIVES_AGREE_H
#define SW_COLLECTIVES_AGREE_H

#include <stdbool.h>
#include <stdint.h>

#include "sidewire/coll.h"

enum { COLL_SET_WORDS = SW_COLL_RANKS_MAX / 64, COLL_CAUSE_TEXT = 256 };

enum coll_mark {
    COLL_MARK_REVOKED = 1 << 0, /* a program wants the end of it all */
    COLL_MARK_AGAIN = 1 << 1,   /* of shrink: connections have ended without a death */
    COLL_MARK_UNABLE = 1 << 2,  /* of shrink: a rank has no memory, or no room in its device */
    COLL_MARKS = 1 << 3,
};

struct coll_set {
    uint64_t words[COLL_SET_WORDS]; /* a bit for each rank that is gone */
    uint32_t marks;                 /* of this epoch */
    uint32_t judge;                 /* the number of the cause; 0: there is none */
};

/* Numbers of causes: that calls differ is found by all, in the same words; any other is a rank's,
 * from COLL_JUDGE_RANK on. */
enum { COLL_JUDGE_ALL = 1, COLL_JUDGE_RANK };

struct coll_cause {
    enum sw_coll_status status; /* MISMATCH or TIMEOUT */
    char text[COLL_CAUSE_TEXT];
};

/* What a rank says: the newest is all that counts. */
struct coll_vote {
    uint64_t epoch; /* from 1; the ones before are decided */
    bool has_said;  /* `set` counts */
    struct coll_set set;
    struct coll_set decided; /* in the epoch before */
    struct coll_cause cause; /* of the first epoch, if there is one */
};

struct coll_heard {
    uint64_t epoch; /* of the newest set that was said */
    uint32_t count, marks, judge;
};

struct coll_agree {
    uint32_t rank, size;
    struct coll_vote vote;    /* this rank's own */
    uint64_t version;         /* of the vote: each one is to be said to all that are not gone */
    struct coll_heard *heard; /* of each rank */
};

enum coll_agree_status {
    COLL_AGREE_WAITS,
    COLL_AGREE_DECIDED, /* `vote.decided`; the next epoch has begun */
    COLL_AGREE_ABSURD,  /* that rank breaks the protocol */
    COLL_AGREE_OUTCAST, /* that rank counts this one as gone */
};

static inline bool coll_set_has(const struct coll_set *set, uint32_t rank)
{
    return set->words[rank / 64] >> rank % 64 & 1;
}

static inline void coll_set_add(struct coll_set *set, uint32_t rank)
{
    set->words[rank / 64] |= 1ull << rank % 64;
}

uint32_t coll_set_count(const struct coll_set *set);
/* The same ranks, whatever the marks. */
bool coll_sets_name_the_same(const struct coll_set *one, const struct coll_set *other);

/* `heard` has room for `size`. */
void coll_agree_init(struct coll_agree *agree, uint32_t rank, uint32_t size,
                     struct coll_heard *heard);
/* This rank has nothing under way any more, and says what it knows. Until then it hears, and takes
 * decisions over, but nobody decides without it. Once in each epoch. */
void coll_agree_join(struct coll_agree *agree);
void coll_agree_mark(struct coll_agree *agree, enum coll_mark mark);
/* In the first epoch: why all ends, in words that all are to have. */
void coll_agree_judge(struct coll_agree *agree, uint32_t judge, enum sw_coll_status status,
                      const char *text);
/* The connection with that rank has ended, and all was heard that had come by it. */
void coll_agree_lose(struct coll_agree *agree, uint32_t rank);
/* The newest vote of that rank, as often as it likes. Votes of ranks that are gone are ignored. */
enum coll_agree_status coll_agree_hear(struct coll_agree *agree, uint32_t rank,
                                       const struct coll_vote *vote);
/* After all that has come was heard: WAITS or DECIDED. */
enum coll_agree_status coll_agree_go(struct coll_agree *agree);
/* That rank is not gone, and has not said the same set as this one. */
bool coll_agree_awaits(const struct coll_agree *agree, uint32_t rank);

#endif
