/* SPDX-License-Identifier: BSD-2-Clause */
/* The pages of all ranks of this user on this host, of killed ones, too. */
#ifndef SW_COLLECTIVES_PAGES_H
#define SW_COLLECTIVES_PAGES_H

#include "collectives/core/recorder.h"
#include "collectives/dump/culprit.h"

struct co_pages {
    struct coll_seen *all; /* by job, then by rank */
    size_t count, room;
};

/* MOVER_DONE, or it has said why not. A file of a killed rank stays while another rank of its job
 * lives; `keeps_dead`: in any case. */
int co_pages_read(struct co_pages *pages, bool keeps_dead);
void co_pages_free(struct co_pages *pages);
/* Whether none of these, which are those of a job, is of a process that lives. */
bool co_pages_are_dead(const struct co_pages *pages, size_t begin, size_t end);
/* Its file: nobody needs it any more. */
void co_pages_remove(const struct coll_seen *seen);
/* Two sessions of a user may have two folders: says which one has nothing. */
void co_pages_tell_none(const char *command);

#endif
