/* SPDX-License-Identifier: BSD-2-Clause */
/* Pages of ranks that were killed. They are kept for `sidewire coll diagnose`, but not for ever. */
#ifndef SW_COLLECTIVES_COMM_SWEEP_H
#define SW_COLLECTIVES_COMM_SWEEP_H

/* Removes those of dead processes that nobody has touched for an hour, and, where more than
 * COLL_DEAD_KEPT are left, the oldest. Looks once a minute. */
void coll_sweep_pages(const char *folder);

enum { COLL_DEAD_KEPT = 128 };

#endif
