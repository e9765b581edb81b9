/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations in the order of their posts: the first one is the machine's. */
#ifndef SW_COLLECTIVES_REQUEST_H
#define SW_COLLECTIVES_REQUEST_H

#include "collectives/comm/comm.h"

/* Goes on with the first ones, as far as it can. */
void coll_requests_go(struct sw_coll *coll);
/* Deadlines, and what is told to the log. */
void coll_requests_tick(struct sw_coll *coll, uint64_t now_ns);
/* All that have not ended end as the communicator has. */
void coll_requests_fail(struct sw_coll *coll);
/* Nothing touches their buffers any more. */
void coll_requests_release(struct sw_coll *coll);
void coll_requests_free(struct sw_coll *coll);
/* The first one's deadline; 0: there is none, or its clock has not started. */
uint64_t coll_requests_deadline_ns(const struct sw_coll *coll);
/* When the first one has to be looked at again, whatever comes: UINT64_MAX, or a time. */
uint64_t coll_requests_wake_ns(const struct sw_coll *coll);

#endif
