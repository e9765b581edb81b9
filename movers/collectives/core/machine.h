/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The operations of one rank as a machine, one after the other. No clock, no I/O; memory only from
 * coll_machine_init()'s caller.
 *
 * Each rank mails OPEN to all others, with what it was called with, and goes on once it has that of
 * all. These are compared, before anything else is read or written. So a mismatch is found by every
 * rank, and told in the same words: of the ranks whose call differs from that of rank 0 the lowest,
 * and the first field that does. OPEN has a hash of counts; where these differ, each rank reads
 * those of the two. How many elements ALL_TO_ALL sends to whom is known to pairs
 * alone; the sum of all digests tells every rank that some pair differs, and DONE then tells it
 * which one.
 */
#ifndef SW_COLLECTIVES_MACHINE_H
#define SW_COLLECTIVES_MACHINE_H

#include "collectives/core/call.h"
#include "collectives/core/plan.h"
#include "collectives/core/port.h"
#include "collectives/core/shown.h"

struct coll_machine {
    struct coll_site site;
    const struct coll_port *port;
    uint8_t *scratch;          /* `site.scratch_bytes`, which the port can pull to and push from */
    struct coll_memory shared; /* how others reach that, in algorithms of several rounds */
    struct coll_shown *shown;  /* coll_shown_bytes(), which others read */

    /* For each rank. */
    struct coll_record *records; /* of OPEN, copied; this rank's own, too */
    struct coll_mail *mails;
    uint32_t *missing; /* the ranks whose message is awaited, `missing_count` of them */
    uint64_t *counts, *recv_counts;
    uint64_t *steps_mailed, *steps_heard; /* STEPs to that rank and from it, of all operations */
    const void **sources;                 /* for each leaf of each rank */
    uint32_t *mailed;                     /* bytes of the payload that each mails this one */
    uint32_t missing_count;

    struct sw_coll_call call; /* a plain one */
    struct coll_table table;
    struct sw_coll_call asked; /* as it was given; its pointers may be gone */
    bool has_table;            /* of that call */
    uint8_t type_shift;        /* 2 to its power are the bytes of an element */
    uint8_t partial_shift;     /* and the bytes of a partial for one of an element */
    uint64_t number;
    struct coll_memory send, recv;
    enum sw_coll_status status; /* AGAIN: an operation is under way */
    struct sw_coll_error error;

    uint32_t step;      /* of the table */
    uint32_t cursor;    /* of the step's requests: how many were posted; AWAIT: 1 once begun */
    uint64_t chunk;     /* of the loop */
    uint64_t posted;    /* pulls and pushes, of all operations */
    uint64_t settled;   /* of these, when it was last looked */
    uint64_t pulled[2]; /* of these: up to the end of the pulls of even chunks, and of odd ones */

    uint32_t unlike; /* a rank whose counts differ from rank 0's; which ones is not known yet */
    /* ALL_TO_ALL with counts; `size`: none. */
    uint32_t finding; /* a rank that sends another number than is awaited */
    uint32_t judge;   /* the lowest rank whose DONE had a verdict */
    struct coll_record verdict;
    bool is_judged; /* some pair differs: nothing is moved */
};

/* How much memory a machine wants, aligned to 64 bytes, beside scratch and what is shown. */
size_t coll_machine_bytes(uint32_t size);
void coll_machine_init(struct coll_machine *machine, const struct coll_site *site,
                       const struct coll_port *port, void *memory, void *scratch,
                       struct coll_shown *shown);
/* Begins operation `number`: the one after the last, or 1. The call is OK by coll_call_check();
 * its counts are copied. `send` and `recv` are what other ranks reach its buffers by, where it is
 * direct. */
void coll_machine_begin(struct coll_machine *machine, const struct sw_coll_call *call,
                        uint64_t number, struct coll_memory send, struct coll_memory recv);
/* Goes on as far as it can. AGAIN: it waits. Else it has ended: OK, or MISMATCH, PROTOCOL or
 * RANK_GONE with `machine->error`, after which no other operation may begin, and requests may still
 * touch its buffers until the connections have ended. */
enum sw_coll_status coll_machine_go(struct coll_machine *machine);

/* Which ranks have not mailed what is awaited: a bool for each. How many. */
uint32_t coll_machine_absent(const struct coll_machine *machine, bool *is_absent);
/* It waits amid an algorithm of several rounds: the ranks above may wait for others themselves. */
bool coll_machine_is_amid_rounds(const struct coll_machine *machine);
/* Which rank that one waits for, by what it shows; itself: for none. It may show what was so before
 * it was stopped: `is_step` is set where that STEP may have been sent by now. */
uint32_t coll_machine_follow(const struct coll_machine *machine, uint32_t rank,
                             const struct coll_shown *shown, bool *is_step);
/* "ranks 2 and 5 have begun operation 17 (reduce), and have not finished" */
void coll_machine_late_text(const struct coll_machine *machine, const bool *is_late, char *text,
                            size_t room);
/* "rank 3 has not begun operation 17 (all_reduce)"; what the machine waits for. */
void coll_machine_waits_text(const struct coll_machine *machine, char *text, size_t room);

#endif
