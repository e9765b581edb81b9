/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Deadlines, and what is said before: who is late in which operation, for how long, and what that
 * rank does, where it is on this host. It looks whenever a rank waits; there is no thread of its
 * own.
 */
#ifndef SW_COLLECTIVES_WATCHDOG_H
#define SW_COLLECTIVES_WATCHDOG_H

#include "collectives/comm/comm.h"

void coll_watchdog_look(struct sw_coll *coll, uint64_t now_ns);
/* When it has to look again, whatever comes: UINT64_MAX, or a time. */
uint64_t coll_watchdog_wake_ns(const struct sw_coll *coll);

#endif
