/* SPDX-License-Identifier: BSD-2-Clause */
/* What follows from the death of a peer's process. */
#ifndef SW_LINK_DIRECT_BIND_DEATH_H
#define SW_LINK_DIRECT_BIND_DEATH_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "link/direct/bind/connection.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/peer.h"

/* Whether a state that a QP has published is that of a connected one. */
static inline bool sw_bind_is_connected(uint32_t state)
{
    return state >= IBV_QPS_RTR && state <= IBV_QPS_SQE;
}

/* Whether the process at the other end has died. */
static inline bool sw_bind_is_gone(const struct sw_direct_qp *d)
{
    return (d->peer && atomic_load(&d->peer->state) == SW_PEER_DEAD) ||
           (d->inbox && atomic_load(&d->inbox->dead));
}

/* The peer's process is gone: ends the QP as that does. The QP is locked. */
void sw_bind_bury(struct sw_qp *qp, struct sw_direct_qp *d);
/* Fails the QPs of processes that died and frees what is left of them; when to call again. */
uint64_t sw_bind_reap(uint64_t now_ns);

#endif
