/* SPDX-License-Identifier: BSD-2-Clause */
/* Where other ranks of the job come in. Strangers are refused, and counted. */
#ifndef SW_COLLECTIVES_DOOR_H
#define SW_COLLECTIVES_DOOR_H

#include "collectives/comm/comm.h"

/* Listens at the address, at a port that is free. 0, or a negative errno. */
int coll_door_open(struct sw_coll *coll, const struct sockaddr *address);
/* The RDMA device that it is at, or NULL. */
struct ibv_context *coll_door_device(struct sw_coll *coll);
void coll_door_events(struct sw_coll *coll);
void coll_door_tick(struct sw_coll *coll);
void coll_door_close(struct sw_coll *coll);

#endif
