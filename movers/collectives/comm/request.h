/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations in the order of their posts: the first one is the machine's. Messages from rank to
 * rank are requests, too, in a list of their own. */
#ifndef SW_COLLECTIVES_REQUEST_H
#define SW_COLLECTIVES_REQUEST_H

#include "collectives/comm/comm.h"

/* OK, or why nothing can be posted any more. */
enum sw_coll_status coll_request_may_post(struct sw_coll *coll, struct sw_coll_error *error);
/* A place for one that is under way, in no list. NULL: no memory. */
struct sw_coll_request *coll_request_take(struct sw_coll *coll, uint64_t deadline_ns);
/* What sw_coll_post() does, for those that wait then: it does not look at the clock. */
enum sw_coll_status coll_request_post(struct sw_coll *coll, const struct sw_coll_call *call,
                                      uint64_t deadline_ns, struct sw_coll_error *error,
                                      struct sw_coll_request **request);
/* The caller may compute now: others see what is awaited meanwhile. */
void coll_request_show(struct sw_coll *coll, struct sw_coll_request *request);
/* It was in a list of those that are not over. */
void coll_request_end(struct sw_coll_request *request, enum sw_coll_status status);

/* Goes on with the first ones, as far as it can. */
void coll_requests_go(struct sw_coll *coll);
/* All that have not ended end as the communicator has. */
void coll_requests_fail(struct sw_coll *coll);
/* Nothing touches their buffers any more. */
void coll_requests_release(struct sw_coll *coll);
void coll_requests_free(struct sw_coll *coll);
/* The first one's deadline; 0: there is none, or its clock has not started. */
uint64_t coll_requests_deadline_ns(const struct sw_coll *coll);

#endif
