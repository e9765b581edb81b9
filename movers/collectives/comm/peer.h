/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection to another rank. The lower one of two ranks dials, and the higher one waits for
 * it, as each operation makes each rank write to all others. So two ranks have one connection.
 */
#ifndef SW_COLLECTIVES_PEER_H
#define SW_COLLECTIVES_PEER_H

#include "collectives/comm/comm.h"

void coll_peer_init(struct coll_peer *peer, struct sw_coll *coll, uint32_t rank);
/* It is going to be needed. */
void coll_peer_want(struct coll_peer *peer);
/* Dials again where that is due. The time of the next one, or UINT64_MAX. */
uint64_t coll_peer_tick(struct coll_peer *peer, uint64_t now_ns);
/* What rdma_cm says. */
void coll_peer_events(struct coll_peer *peer);
/* A request that came and is this rank's. False: there is no room for it, which has ended the
 * communicator, and it is still the caller's. */
bool coll_peer_accept(struct coll_peer *peer, struct rdma_cm_id *id);
/* It has rung. So the connection is up, though rdma_cm may say that much later. */
void coll_peer_note_bell(struct coll_peer *peer);
/* The connection is over. */
void coll_peer_lose(struct coll_peer *peer);
/* It has closed its communicator, and before that ended operation `number`. */
bool coll_peer_has_left(const struct coll_peer *peer, uint64_t number);
/* It has closed, and does not do operation `number`. */
bool coll_peer_has_quit(const struct coll_peer *peer, uint64_t number);
/* It has closed, or the connection is over. A close is the last that is said, and may be there long
 * before the end of the connection. */
bool coll_peer_has_closed(const struct coll_peer *peer);
/* Nothing touches memory any more. */
void coll_peer_tear_down(struct coll_peer *peer);

#endif
