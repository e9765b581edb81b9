/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When a rank writes what it has recorded: after a failure, when a signal asks for it, or when the
 * program does. A signal only counts itself; the next look at descriptors sees that. A rank that
 * computes, or is stopped, answers later, or never: `sidewire coll dump` reads its page instead.
 */
#ifndef SW_COLLECTIVES_COMM_DUMP_H
#define SW_COLLECTIVES_COMM_DUMP_H

#include "collectives/comm/comm.h"

/* Where dumps go, and by which signal. A signal that cannot be had is told to the log. False: there
 * is no memory. */
bool coll_dump_open(struct sw_coll *coll);
void coll_dump_close(struct sw_coll *coll);
/* Answers a signal that has come. */
void coll_dump_look(struct sw_coll *coll);
/* The communicator has failed: notes how, and writes a dump. */
void coll_dump_failure(struct sw_coll *coll);

#endif
