/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The messages of an operation. Each rank has a mailbox for each other rank, with two sides by
 * turns: one for operations of even numbers, one for odd ones. That is enough, since nobody ends an
 * operation before all have begun it. A side has a place for each slot:
 *
 *     OPEN   payload of up to `eager_bytes`, which ends where the record begins; the record.
 *            A payload of up to COLL_INLINE_MAX bytes is in the record instead
 *     DONE   a record
 *     STEP   a record, of which the mark alone counts: what was written before is there. Those of
 *            one rank to another have numbers of their own from 1, and go to the sides by turns.
 *            Nobody mails one before the one before the last was seen
 *
 * The mark of a record becomes visible last. It holds that number, or the number of the operation,
 * so what an earlier one has left there is never taken for it. Numbers are little-endian, as those
 * of all processors that this runs on.
 */
#ifndef SW_COLLECTIVES_RECORD_H
#define SW_COLLECTIVES_RECORD_H

#include <assert.h>
#include <stdint.h>

enum coll_slot { COLL_OPEN, COLL_DONE, COLL_STEP, COLL_SLOTS };

enum { COLL_INLINE_MAX = 24 };

/* The ways of an operation: all ranks take the same one. */
enum coll_plan {
    COLL_PLAN_ANY,
    COLL_PLAN_EAGER,   /* what others need travels with OPEN */
    COLL_PLAN_OWNERS,  /* each rank reads, folds and writes its slice */
    COLL_PLAN_HALVING, /* vector halving with distance doubling */
    COLL_PLAN_RING,    /* in another order than the tree */
    COLL_PLANS,
};

/* What DONE says. */
enum coll_verdict {
    COLL_FINISHED,
    COLL_PAIR_DIFFERS, /* ALL_TO_ALL: `root` sends `count`, and `digest` are awaited */
};

/* Where another rank's buffer is, as its requests name it. */
struct coll_memory {
    uint64_t address;
    uint32_t key;
};

struct coll_record {
    union {
        struct {
            /* What the receiver of this reads, or the scratch that it writes to in algorithms of
             * several rounds; and the buffer that it writes to. */
            uint64_t send_address, recv_address;
            uint32_t send_key, recv_key;
        };
        uint8_t payload[COLL_INLINE_MAX]; /* where it has room; then no buffer is named */
    };
    uint64_t count;                 /* of the call; of ALL_TO_ALL: for the receiver of this */
    uint64_t digest;                /* of `counts`; ALL_TO_ALL: all ranks' sum to 0 */
    uint32_t root;                  /* of the call */
    uint32_t payload_bytes;         /* before the record, or in it */
    uint8_t kind, type, op, leaves; /* of the call */
    uint8_t plan;                   /* enum coll_plan */
    uint8_t has_counts;             /* 1: `counts` were given */
    uint8_t verdict;                /* of DONE: enum coll_verdict */
    uint8_t reserved;
    uint64_t mark; /* the number of the operation, or of the STEP, from 1 */
};

static_assert(sizeof(struct coll_record) == 64, "one cache line");

/* A message that is there, until the operation ends. Another rank can write to it at any time. */
struct coll_mail {
    const struct coll_record *record;
    const uint8_t *payload_end; /* the byte behind its payload; `eager_bytes` before it are there */
};

#endif
