/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections of peers to this agent. Their data passes by; here are their notices, and the windows
 * that are bound to their queue pairs. A visitor is all connections of one session: a lane each.
 */
#ifndef SW_MOVERS_TRANSFER_ENGINE_VISITOR_H
#define SW_MOVERS_TRANSFER_ENGINE_VISITOR_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "sidewire/transfer.h"

struct xfe_visitor;

void xfe_visitors_events(struct sw_xfer_agent *agent);
void xfe_visitor_ready(struct xfe_visitor *visitor);
/* A turn for each of those that had more to do than one. */
void xfe_visitors_go_on(struct sw_xfer_agent *agent);
void xfe_visitors_end(struct sw_xfer_agent *agent);
/* One of its lanes, or that lane; NULL: it has none. */
struct xfe_visitor *xfe_visitor_of(const struct sw_xfer_agent *agent, uint64_t number);
struct xfe_visitor *xfe_visitor_at(const struct sw_xfer_agent *agent, uint64_t number,
                                   uint32_t lane);
uint64_t xfe_visitor_number(const struct xfe_visitor *visitor);
uint32_t xfe_visitor_lane(const struct xfe_visitor *visitor);
void xfe_visitor_end(struct xfe_visitor *visitor);
/* Posts a request that has to do with a window, and waits for its completion. -EOPNOTSUPP: the
 * device takes none; -EPIPE: its queue pair is of no use any more. */
int xfe_visitor_window(struct xfe_visitor *visitor, struct ibv_send_wr *wr);
/* Takes notices that had no room. */
void xfe_visitors_retry(struct sw_xfer_agent *agent);

#endif
