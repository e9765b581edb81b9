/* SPDX-License-Identifier: BSD-2-Clause */
/* Where ranks are in the tree of a sum: those of one host are neighbours. */
#ifndef SW_COLLECTIVES_PLACEMENT_H
#define SW_COLLECTIVES_PLACEMENT_H

#include "collectives/comm/comm.h"

#define COLL_PLACEMENT "SIDEWIRE_COLL_PLACEMENT"

/* Alike for all processes of this host, until it starts anew; or what SIDEWIRE_COLL_HOST says. */
uint64_t coll_host_number(void);
/* What options and environment say: whether ranks keep their places. False: another word. */
bool coll_placement_wanted(const struct sw_coll_options *options, bool *keeps_ranks);
/* The cards are there. Hosts come in the order of their lowest ranks, in a host ranks in their own.
 */
void coll_placement_find(struct sw_coll *coll);
/* A line for the log, of rank 0, if ranks are not at the places of their numbers. */
void coll_placement_tell(const struct sw_coll *coll);

#endif
