/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lanes: an XRC initiator's connections to processes that share the domain of its target. A request
 * that names an SRQ of such a process goes there itself, to the QP that stands in for the target
 * (device/queue/stand_in.h). The target's own process has no part in it, but its QP must be there.
 *
 * A lane is a struct sw_direct_qp beside the initiator's own, and has its send queue. Requests to
 * another process begin when all before them are answered: one lane is in use at a time.
 */
#ifndef SW_LINK_DIRECT_BIND_LANE_H
#define SW_LINK_DIRECT_BIND_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "link/direct/bind/connection.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/control.h"
#include "link/direct/process/peer.h"

enum sw_lane_state { SW_LANE_NONE, SW_LANE_WANTED, SW_LANE_ASKED, SW_LANE_OPEN, SW_LANE_REFUSED };

/* The connection in use: d itself or a lane. */
static inline struct sw_direct_qp *sw_lane_busy(struct sw_direct_qp *d)
{
    return __builtin_expect(d->xrc.busy != NULL, 0) ? d->xrc.busy : d;
}

/* Whether a request to this SRQ goes by the connection `via`. */
static inline bool sw_lane_leads_to(const struct sw_direct_qp *via, uint32_t srq_num)
{
    return via->peer->slot == sw_qpn_slot(srq_num);
}

/* Inside a section of d: the connection that the request at the front of the queue goes by, as
 * *via, inside a section of its own if it is a lane. */
enum sw_step sw_lane_enter(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_direct_qp **via);
/* Whether the lane's other end is gone; then what is unanswered stays so. */
bool sw_lane_is_lost(const struct sw_qp *qp, const struct sw_direct_qp *lane);
/* Lets go of all lanes, when nobody may start an access to the initiator any more. */
void sw_lane_close_all(struct sw_direct_qp *d);
/* The same for unused ones to processes that have died. */
void sw_lane_bury(struct sw_direct_qp *d);
void sw_lane_forget_keys(struct sw_direct_qp *d, const struct sw_peer *peer);

/* Engine. Asks for what is wanted; an answer has come; another process asks: fills
 * join->stand_in. */
void sw_lane_step(void);
void sw_lane_joined(const struct sw_join *join);
void sw_lane_serve(struct sw_join *join);

#endif
