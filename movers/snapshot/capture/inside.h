/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a capture consists of. All is under its lock, but for what a job reads of the state, which
 * does not change while one is under way.
 *
 * A capture goes through phases. In each, helpers and the caller of a gate take jobs of one kind:
 *
 *     FORGET       the kernel protects the pages that it watches       one job
 *     SUM          blocks that the kernel does not watch are summed    the end of it is the instant
 *     COPY         units are copied, and compared with these sums
 *                  or, where a gate of all came amid SUM: copied, and LOOK_AGAIN is next
 *     ASK          the kernel tells what was written                   one job
 *     HOLD         something has changed: the gate has to come
 *     COPY_AGAIN   what has changed is copied again                    the end of it is the instant
 *     LOOK_AGAIN   all is summed once more, and the kernel is asked
 *
 * Behind ASK and LOOK_AGAIN it is CLEAN where nothing has changed.
 */
#ifndef SW_SNAPSHOT_INSIDE_H
#define SW_SNAPSHOT_INSIDE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/rdma/fork_guard.h"
#include "snapshot/capture/capture.h"
#include "snapshot/capture/pages.h"
#include "snapshot/capture/ring.h"
#include "snapshot/capture/unit.h"
#include "snapshot/core/unit.h"

enum { SNAP_HELPERS_MAX = 16, SNAP_HELPER_NICENESS = 10 };

enum snap_phase {
    SNAP_PHASE_NONE = 0,
    SNAP_PHASE_FORGET,
    SNAP_PHASE_SUM,
    SNAP_PHASE_COPY,
    SNAP_PHASE_ASK,
    SNAP_PHASE_HOLD,
    SNAP_PHASE_COPY_AGAIN,
    SNAP_PHASE_LOOK_AGAIN,
};

/* A range of the state. */
struct snap_part {
    const uint8_t *data;
    uint64_t bytes;
    uint32_t first_unit, units_count; /* 0: it has no bytes */
    struct snap_span span;            /* that the kernel watches; empty: none */
    bool is_torn, is_let_go;
    bool is_lost; /* the kernel tells nothing of it any more: from the next phase on, sums do */
};

enum { SNAP_ALL_PAGES = UINT32_MAX }; /* the unit of a job that is about pages */

/* Two threads may have one about the same unit: the one that ends first counts. */
struct snap_job {
    enum snap_phase phase;
    uint64_t round; /* in which it was begun */
    uint32_t unit, slot;
    uint32_t head, tail;   /* of the unit, as it was then */
    struct snap_sum *sums; /* that it has found */
    int code;
    uint32_t bad_range;
};

/* A thread that does jobs, and its room. */
struct snap_worker {
    struct snap_sum sums[SNAP_UNIT_BLOCKS_MAX];
    uint8_t *scratch; /* in the ring, for a copier */
};

struct snap_helper {
    struct snap_capture *capture;
    pthread_t thread;
    struct snap_worker worker;
};

struct snap_capture {
    struct mover_fork_guard guard;
    struct snap_capture_options options;
    struct snap_reading reading;
    struct snap_ring ring;
    struct snap_pages pages;
    int event_fd;
    struct snap_helper helpers[SNAP_HELPERS_MAX];
    struct snap_worker caller;
    uint32_t helpers_count;

    pthread_mutex_t lock;
    pthread_cond_t work;     /* for helpers */
    pthread_cond_t progress; /* for the program's thread */
    bool is_closing;
    int caller_processor; /* where begin was called; helpers keep off it */

    /* The state. */
    struct snap_part *parts;
    struct snap_piece *pieces;
    struct snap_unit *units;
    struct snap_sum *seen; /* what each block was when it was seen last */
    bool *written;         /* of each unit: what the kernel has told */
    uint32_t parts_count, units_count;

    /* The capture that is under way, or the last one. */
    enum snap_phase phase;
    uint64_t number;
    uint64_t round;                 /* counts phases, of all captures */
    uint32_t cursor, todo, running; /* jobs of units: the next, not begun yet, begun */
    bool pages_todo;                /* the job about pages */
    uint32_t busy;                  /* threads that have a job, of earlier rounds too */
    uint32_t dirty, looks;
    bool is_gated;               /* a gate of all waits */
    bool is_copy_first;          /* copies are the first look: all is summed behind them */
    bool has_let_go;             /* some of the state may be written to already */
    bool is_by_pages;            /* the kernel watches some of it */
    uint32_t wanted, wanted_end; /* ranges that go first */
    struct snap_capture_info info;
};

/* ---- phase.c: under the lock ---- */

void snap_phase_begin(struct snap_capture *capture);
/* A job, or false: there is none at the moment. */
bool snap_phase_next(struct snap_capture *capture, struct snap_job *job);
/* Where all jobs have begun: one that another thread has begun, and does not end. False: there is
 * none, or no room for it. */
bool snap_phase_steal(struct snap_capture *capture, struct snap_job *job);
/* Ends a job, and the phase where it was the last one. */
void snap_phase_end_job(struct snap_capture *capture, const struct snap_job *job);
/* A gate of all has come: what HOLD keeps back may be done. */
void snap_phase_gate(struct snap_capture *capture);
/* Ends what is under way. Jobs that were begun end later, and change nothing. */
void snap_phase_give_up(struct snap_capture *capture, enum snap_capture_outcome outcome);
/* Counts as changed what the kernel has told of in `written`. */
void snap_phase_mark_written(struct snap_capture *capture);
/* Names what has changed, and ends the capture. */
void snap_phase_tear(struct snap_capture *capture);
/* Whether all units of a range are copied. */
bool snap_phase_has_copied(const struct snap_capture *capture, const struct snap_part *part);
uint64_t snap_phase_left_bytes(const struct snap_capture *capture);

/* ---- job.c ---- */

/* Without the lock; a job is of one thread. */
void snap_job_do(struct snap_capture *capture, struct snap_worker *worker, struct snap_job *job);
/* Asks the kernel about a range; units that were written are marked in `written`, and all of them
 * where it does not tell. */
void snap_job_ask(struct snap_capture *capture, struct snap_part *part);

/* ---- helper.c ---- */

/* Does a job without the lock, which is held before and behind, and ends it. */
void snap_helper_do(struct snap_capture *capture, struct snap_worker *worker, struct snap_job *job);

int snap_helpers_start(struct snap_capture *capture);
void snap_helpers_stop(struct snap_capture *capture);

/* ---- state.c ---- */

int snap_state_make(struct snap_capture *capture, const struct snap_capture_range *ranges,
                    uint32_t ranges_count, uint32_t *bad);
void snap_state_free(struct snap_capture *capture);
/* Sums tell of all of a range from now on. No job is under way. */
void snap_state_unwatch(struct snap_capture *capture, struct snap_part *part);

#endif
