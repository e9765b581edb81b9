/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What this rank writes into its flight recorder. An operation is recorded once it waits for the
 * first time, when its messages are on their way, or once it is over. It looks at the clock when
 * the rank does anyway.
 */
#ifndef SW_COLLECTIVES_COMM_RECORDER_H
#define SW_COLLECTIVES_COMM_RECORDER_H

#include "collectives/comm/comm.h"
#include "collectives/core/recorder.h"

/* It waits, or stands behind others. Does nothing where it is recorded as that already. `now_ns`:
 * 0, nobody has looked. */
void coll_recorder_wait(struct sw_coll *coll, struct sw_coll_request *request, uint64_t now_ns);
/* The first look at the clock while the current operation waits: that is when it has begun. */
void coll_recorder_look(struct sw_coll *coll, uint64_t now_ns);
/* It is over, and `coll->machine` is still in it. */
void coll_recorder_end(struct sw_coll *coll, struct sw_coll_request *request,
                       enum sw_coll_status status);
/* A split or a shrink has ended. `child`: NULL, this rank has no part. */
void coll_recorder_child(struct sw_coll *coll, enum coll_recorded_kind kind,
                         const struct sw_coll *child, int32_t color, int32_t key,
                         uint64_t began_ns);

#endif
