/* SPDX-License-Identifier: BSD-2-Clause */
/* Which rank the others wait for, of what the pages of a job say. */
#ifndef SW_COLLECTIVES_DUMP_CULPRIT_H
#define SW_COLLECTIVES_DUMP_CULPRIT_H

#include <stddef.h>

#include "collectives/core/recorder.h"
#include "collectives/dump/words.h"

/* A rank as somebody has seen it. */
struct coll_seen {
    struct coll_page page;
    enum coll_dump_process process;
    const struct coll_recorder *recorder; /* NULL: only its page is known */
};

/* The rank that is awaited in a job. */
struct coll_culprit {
    uint32_t rank;                    /* the size of the job: nobody is awaited */
    const struct coll_seen *seen;     /* NULL: there is no page of it */
    const struct coll_seen *waits_in; /* the job in which it waits itself; NULL: none is known */
    unsigned stage;                   /* of the ones that wait */
    bool is_for_opening;              /* they wait in no operation of this job */
};

/* `job` has the pages of one, by rank, and `all` those of other jobs, too. */
struct coll_culprit coll_culprit_find(const struct coll_seen *job, size_t count,
                                      const struct coll_seen *all, size_t all_count);
/* "rank 1 (process 77) is awaited: it is in operation 154444, and is stopped" */
void coll_culprit_text(const struct coll_culprit *culprit, char *text, size_t room);
/* Behind the last one of the same job. */
size_t coll_culprit_job_end(const struct coll_seen *all, size_t count, size_t begin);

#endif
