/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Visitors: connections of peers to this agent, a lane of a session each. Their data passes by.
 */
#ifndef SW_MOVERS_TRANSFER_ENGINE_VISITOR_H
#define SW_MOVERS_TRANSFER_ENGINE_VISITOR_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "common/rdma/queue.h"
#include "sidewire/transfer.h"
#include "transfer/engine/device.h"
#include "transfer/engine/notice.h"
#include "transfer/engine/session.h"
#include "transfer/engine/source.h"
#include "transfer/wire/message.h"

struct xfe_visitor {
    struct xfe_source source;
    struct sw_xfer_agent *agent;
    struct rdma_cm_id *id;
    struct mover_queue queue;
    struct ibv_mr *mr;
    uint32_t slot;
    struct xfe_device *device;
    struct xfe_session *session;
    uint8_t lane, count;
    bool window_done;
    bool has_more;   /* than a turn */
    bool is_summing; /* for this receive, and so many of its sums are made */
    uint32_t summing, summed;
    uint32_t waiting_count; /* receives with notices that have no room yet, oldest first */
    uint8_t waiting[XFE_CREDITS];
    uint32_t lengths[XFE_CREDITS];
    uint8_t receives[XFE_CREDITS][XFW_MESSAGE_MAX];
    uint8_t acks[XFE_CREDITS][XFW_ANSWER_MAX];
};

/* What a completion is of: a receive, whose number is in it too, a window, or else an answer. */
static const uint64_t XFE_RECEIVE_WR = 1ull << 63, XFE_WINDOW_WR = 1ull << 62;

/* One of its lanes, or that lane, or the lane of a session; NULL: there is none. */
struct xfe_visitor *xfe_visitor_of(const struct sw_xfer_agent *agent, uint64_t number);
struct xfe_visitor *xfe_visitor_at(const struct sw_xfer_agent *agent, uint64_t number,
                                   uint32_t lane);
struct xfe_visitor *xfe_visitor_find(const struct sw_xfer_agent *agent,
                                     const struct xfe_session *session, uint8_t lane);
/* A lane of that session, without a queue pair yet. NULL: there is no room for it. */
struct xfe_visitor *xfe_visitor_new(struct sw_xfer_agent *agent, struct rdma_cm_id *id,
                                    const struct xfe_session *as);
bool xfe_visitor_make_queue(struct xfe_visitor *visitor);
bool xfe_visitor_post_receive(struct xfe_visitor *visitor, uint32_t index);
/* Frees all but the id. Windows can be freed once their queue pair is gone. */
void xfe_visitor_free(struct xfe_visitor *visitor);
void xfe_visitor_end(struct xfe_visitor *visitor);
void xfe_visitors_end(struct sw_xfer_agent *agent);

#endif
