/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_COLLECTIVES_RANKS_H
#define SW_COLLECTIVES_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "rank 3", "ranks 2, 3 and 5", "ranks 0, 1 and 62 more": so many at most, and as many as there is
 * room for. Its length. */
size_t coll_ranks_text(const bool *is_named, uint32_t size, uint32_t named_max, char *text,
                       size_t room);

#endif
