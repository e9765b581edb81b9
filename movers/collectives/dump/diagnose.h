/* SPDX-License-Identifier: BSD-2-Clause */
/* What dumps of several ranks tell: which rank differs, is awaited, or is late. */
#ifndef SW_COLLECTIVES_DUMP_DIAGNOSE_H
#define SW_COLLECTIVES_DUMP_DIAGNOSE_H

#include "collectives/dump/read.h"

enum coll_found {
    COLL_FOUND_DIFFERS, /* a rank made another call */
    COLL_FOUND_AWAITED, /* the others wait for it */
    COLL_FOUND_CYCLE,   /* ranks wait for each other: `waiting` has them */
    COLL_FOUND_GONE,    /* it died, or closed */
    COLL_FOUND_FAILED,  /* the communicator has failed; its words */
    COLL_FOUND_NO_DUMP,
    COLL_FOUND_LATE, /* it came last, by a time that counts */
    COLL_FOUND_WELL,
    COLL_FOUND_VERDICTS,
};

enum { COLL_NO_RANK = UINT32_MAX };

struct coll_finding {
    enum coll_found verdict;
    uint64_t job;
    uint32_t rank;    /* NO_RANK: of none alone */
    uint32_t kind;    /* enum sw_coll_kind, enum coll_recorded_kind; UINT32_MAX: none */
    uint64_t number;  /* of the operation, or of the message; 0: none */
    uint64_t time_ns; /* how long it is awaited, or how late it came; 0: it is not known */
    uint8_t waiting[SW_COLL_RANKS_MAX / 8]; /* a bit for each rank that waits for it */
    char text[1024];
};

struct coll_findings {
    struct coll_finding *all; /* free() it */
    size_t count, room;
};

/* The dumps of one communicator, by rank: one for each at most. */
struct coll_job {
    const struct coll_dump *const *dumps;
    const struct coll_seen *seen; /* of the same */
    size_t count;
    uint32_t size;
};

/* Sorts `dumps`; of two of one rank the newer one counts. False: out of memory. */
bool coll_diagnose(const struct coll_dump **dumps, size_t count, struct coll_findings *findings);
/* "differs", "awaited" ... */
const char *coll_finding_word(enum coll_found verdict);

/* ---- its parts ---- */

/* NULL: no memory. */
struct coll_finding *coll_finding_add(struct coll_findings *findings, const struct coll_job *job,
                                      enum coll_found verdict);
bool coll_find_differences(const struct coll_job *job, struct coll_findings *findings);
bool coll_find_late(const struct coll_job *job, struct coll_findings *findings);
/* "all_reduce (sum) of 16 f32" */
void coll_dumped_text(const struct coll_dumped *operation, char *text, size_t room);
/* "1.2 s", "3 ms" */
void coll_span_text(uint64_t span_ns, char *text, size_t room);

#endif
