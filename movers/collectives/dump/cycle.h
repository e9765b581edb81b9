/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranks that wait for each other in a cycle, of what their pages say: none of them goes on. */
#ifndef SW_COLLECTIVES_DUMP_CYCLE_H
#define SW_COLLECTIVES_DUMP_CYCLE_H

#include "collectives/dump/culprit.h"

struct coll_cycle {
    uint32_t count;                    /* 0: there is none */
    uint16_t ranks[SW_COLL_RANKS_MAX]; /* each waits for the next one, the last for the first */
};

/* `job` has the pages of one, by rank. A cycle within one operation is none: these end. */
void coll_cycle_find(const struct coll_seen *job, size_t count, struct coll_cycle *cycle);
/* "ranks wait for each other in a cycle: rank 0 sends to rank 1, rank 1 sends to rank 0" */
void coll_cycle_text(const struct coll_seen *job, size_t count, const struct coll_cycle *cycle,
                     char *text, size_t room);

#endif
