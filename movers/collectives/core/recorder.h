/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The flight recorder of a rank: its last operations and messages, in the file of its page. So they
 * can be read of a rank that is stopped, or was killed. The rank alone writes to it, by plain
 * stores.
 * docs/coll-dump.md has what a dump makes of it.
 */
#ifndef SW_COLLECTIVES_RECORDER_H
#define SW_COLLECTIVES_RECORDER_H

#include "collectives/core/page.h"

enum {
    COLL_RECORDS = 1024,
    COLL_RECORDER_PAGE = 4096,
    COLL_RECORDED_COUNTS = 4096, /* numbers of unequal blocks, of all records together */
};

/* What is recorded beside operations, whose enum sw_coll_kind it has. */
enum coll_recorded_kind {
    COLL_RECORDED_SEND = SW_COLL_KINDS,
    COLL_RECORDED_RECV,
    COLL_RECORDED_SPLIT,  /* it has ended; `number` is the job of this rank's part, 0: none */
    COLL_RECORDED_SHRINK, /* the same */
    COLL_RECORDED_KINDS,
};

enum { COLL_HAS_COUNTS = 1, COLL_HAS_RECV_COUNTS = 2 };

struct coll_recorded {
    uint64_t serial; /* from 1: of all records of the rank; 0 while it is written */
    uint64_t number; /* of the operation, or of the message from that rank or to it */
    uint64_t count;  /* of elements; SPLIT: color and key, 32 bits each; SHRINK: 0 */
    /* CLOCK_MONOTONIC; 0: not yet. Eager operations and messages have the first and the last look
     * at the clock that the rank took anyway, each 32 looks at memory. One that was over before
     * that has a time up to 4 ms behind. */
    uint64_t posted_ns, begun_ns, ended_ns;
    uint32_t counts_at; /* where its counts begin, of all that were ever recorded */
    uint16_t step;      /* where it ended, of the table of steps: its length if it went well */
    uint16_t peer;      /* root, or the other rank of a message */
    uint8_t kind, type, op, leaves;
    uint8_t plan;   /* enum coll_plan, once it has begun */
    uint8_t status; /* enum sw_coll_status; AGAIN: it has not ended */
    uint8_t has;    /* COLL_HAS_COUNTS, COLL_HAS_RECV_COUNTS: one number for each rank */
    uint8_t reserved;
};

static_assert(sizeof(struct coll_recorded) == 64, "one cache line");

struct coll_recorder {
    union {
        struct coll_page page;
        uint8_t page_bytes[COLL_RECORDER_PAGE];
    };
    struct coll_recorded records[COLL_RECORDS]; /* that of serial N at N modulo its length */
    uint64_t counts[COLL_RECORDED_COUNTS];
    uint64_t recorded;                 /* the newest serial */
    uint64_t counted;                  /* numbers in `counts`, of all that were ever recorded */
    uint16_t ranks[SW_COLL_RANKS_MAX]; /* the one at each place of the tree of a sum */
};

/* False: it is not there, or not any more. */
static inline bool coll_recorder_read(const struct coll_recorder *recorder, uint64_t serial,
                                      struct coll_recorded *copy)
{
    const struct coll_recorded *record = &recorder->records[serial % COLL_RECORDS];
    const uint64_t before = __atomic_load_n(&record->serial, __ATOMIC_ACQUIRE);
    memcpy(copy, record, sizeof(*copy));
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return before == serial && __atomic_load_n(&record->serial, __ATOMIC_RELAXED) == serial;
}

/* The oldest that may be there; those up to `recorded` may be, too. */
static inline uint64_t coll_recorder_first(const struct coll_recorder *recorder)
{
    const uint64_t newest = __atomic_load_n(&recorder->recorded, __ATOMIC_ACQUIRE);
    return newest > COLL_RECORDS ? newest - COLL_RECORDS + 1 : 1;
}

/* Its counts; false: newer ones lie there, or it has none of them. `size`: of ranks. */
static inline bool coll_recorder_counts(const struct coll_recorder *recorder,
                                        const struct coll_recorded *record, uint8_t which,
                                        uint32_t size, uint64_t *counts)
{
    const uint32_t skipped = which == COLL_HAS_RECV_COUNTS && record->has & COLL_HAS_COUNTS;
    const uint32_t at = record->counts_at + (skipped ? size : 0);
    if (!(record->has & which) || size > COLL_RECORDED_COUNTS)
        return false;
    for (uint32_t i = 0; i < size; i++)
        counts[i] = recorder->counts[(at + i) % COLL_RECORDED_COUNTS];
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    const uint64_t counted = __atomic_load_n(&recorder->counted, __ATOMIC_RELAXED);
    return (uint32_t)counted - record->counts_at <= COLL_RECORDED_COUNTS;
}

#endif
