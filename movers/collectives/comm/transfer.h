/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages from rank to rank: the port of their machine, and their requests. */
#ifndef SW_COLLECTIVES_TRANSFER_H
#define SW_COLLECTIVES_TRANSFER_H

#include "collectives/comm/comm.h"

/* False: no memory. */
bool coll_transfers_open(struct sw_coll *coll);
void coll_transfers_close(struct sw_coll *coll);
/* Goes on with all, as far as they can. */
void coll_transfers_go(struct sw_coll *coll);
/* Which ranks something is awaited from, this one left out: a bool for each. How many. */
uint32_t coll_transfers_absent(const struct sw_coll *coll, bool *is_absent);
/* Something is awaited from a rank that has closed, or died: that comes never. */
bool coll_transfers_have_lost_any(struct sw_coll *coll);
/* A rank that is listened to has a message that no receive is for, or will have none any more. */
bool coll_transfers_have_news(struct sw_coll *coll);

#endif
