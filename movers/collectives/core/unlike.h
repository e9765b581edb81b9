/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which of their counts differ. OPEN has only a hash of them, so a rank that finds another one
 * there reads the counts of both ranks that the error names.
 */
#ifndef SW_COLLECTIVES_UNLIKE_H
#define SW_COLLECTIVES_UNLIKE_H

#include "collectives/core/machine.h"

/* That rank's call differs from rank 0's in nothing but that. Returns false, as the next one: it
 * waits for the counts, or has failed. */
bool coll_unlike_begin(struct coll_machine *machine, uint32_t rank);
bool coll_unlike_go(struct coll_machine *machine);
static inline bool coll_unlike_is_under_way(const struct coll_machine *machine)
{
    return machine->unlike < machine->site.size;
}

#endif
