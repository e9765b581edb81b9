/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * After a death, a revocation, a deadline, or unlike calls: the ranks that are left agree on which
 * ones are gone, and on the words. Those that are late are left out, as if they were gone. The
 * connections between them stay. A rank says its set only when its own reads and writes have
 * completed; so once there is a decision, nothing touches anybody's buffers any more.
 */
#ifndef SW_COLLECTIVES_AGREEMENT_H
#define SW_COLLECTIVES_AGREEMENT_H

#include "collectives/comm/comm.h"

/* Operations end here, for good. The rest is done by coll_failure_end(). `deadline_ns` 0: that of
 * the first operation, or of the options; 5 s at least. */
void coll_agreement_begin(struct sw_coll *coll, uint64_t deadline_ns);
/* A step of the epoch that is under way; `joins`: this rank says its set as soon as it may. True:
 * it is decided (`agree.vote.decided`), and all others have been told, or the deadline has passed.
 * False: it goes on, or it is not agreeing any more: the communicator has failed in another way. */
bool coll_agreement_step(struct sw_coll *coll, bool joins);
/* The end of the first epoch: what was decided is the failure. */
void coll_agreement_finish(struct sw_coll *coll);
/* Waits a little for what comes next. */
void coll_agreement_nap(struct sw_coll *coll);

#endif
