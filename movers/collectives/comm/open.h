/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of opening that also make one communicator out of another one. */
#ifndef SW_COLLECTIVES_OPEN_H
#define SW_COLLECTIVES_OPEN_H

#include "collectives/comm/comm.h"

/* This rank's side of a new one: it listens, and has its card. With the options and at the address
 * of the parent. */
enum sw_coll_status coll_open_child(const struct sw_coll *parent, uint32_t rank, uint32_t size,
                                    struct sw_coll_error *error, struct sw_coll **child);
/* The cards of all ranks, in their order. */
enum sw_coll_status coll_open_cards(struct sw_coll *coll, const uint8_t *cards,
                                    struct sw_coll_error *error);
/* Begins to connect with all others. */
void coll_open_want(struct sw_coll *coll);
/* Which ranks there is no connection with, nor was: one may have opened and closed already. A bool
 * for each. How many. */
uint32_t coll_open_missing(const struct sw_coll *coll, bool *is_missing);

#endif
