/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether ranks of this host have to give each other their processors while they wait. */
#ifndef SW_COLLECTIVES_PROCESSORS_H
#define SW_COLLECTIVES_PROCESSORS_H

#include <stdbool.h>
#include <stdint.h>

struct coll_processors {
    uint32_t bound;  /* number of the one that this rank is bound to, from 1; 0: it may use more */
    uint32_t usable; /* by this rank, or by all that are bound */
};

struct coll_processors coll_processors_of_this(void);
/* `here`: ranks of this host; `on_mine`: those of them that are bound to the same one, this too. */
bool coll_processors_are_short(const struct coll_processors *processors, uint32_t here,
                               uint32_t on_mine);

#endif
