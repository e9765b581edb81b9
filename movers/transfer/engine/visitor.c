/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/visitor.h"

#include <stdlib.h>
#include <string.h>

#include "common/rdma/memory.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/lease.h"
#include "transfer/engine/origin.h"

enum { SENDS = XFE_CREDITS + 2 };

struct xfe_visitor *xfe_visitor_of(const struct sw_xfer_agent *agent, uint64_t number)
{
    for (uint32_t i = 0; i < agent->visitors_slots; i++)
        if (agent->visitors[i] && agent->visitors[i]->session->number == number)
            return agent->visitors[i];
    return NULL;
}

struct xfe_visitor *xfe_visitor_at(const struct sw_xfer_agent *agent, uint64_t number,
                                   uint32_t lane)
{
    for (uint32_t i = 0; i < agent->visitors_slots; i++)
        if (agent->visitors[i] && agent->visitors[i]->session->number == number &&
            agent->visitors[i]->lane == lane)
            return agent->visitors[i];
    return NULL;
}

struct xfe_visitor *xfe_visitor_find(const struct sw_xfer_agent *agent,
                                     const struct xfe_session *session, uint8_t lane)
{
    for (uint32_t i = 0; i < agent->visitors_slots; i++)
        if (agent->visitors[i] && agent->visitors[i]->lane == lane &&
            xfe_session_is(agent->visitors[i]->session, session))
            return agent->visitors[i];
    return NULL;
}

bool sw_xfer_visitor_is_live(const struct sw_xfer_agent *agent, uint64_t visitor)
{
    return xfe_visitor_of(agent, visitor);
}

uint32_t sw_xfer_visitors(const struct sw_xfer_agent *agent)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < agent->options.visitors_max; i++)
        count += agent->sessions[i].lanes != 0;
    return count;
}

uint64_t sw_xfer_visitor_in(const struct sw_xfer_agent *agent, uint32_t place, uint8_t address[16])
{
    const struct xfe_session *session =
        place < agent->options.visitors_max ? &agent->sessions[place] : NULL;
    if (!session || !session->lanes)
        return 0;
    memcpy(address, &session->origin->address, sizeof(session->origin->address));
    return session->number;
}

/* ---- its beginning and its end ---- */

struct xfe_visitor *xfe_visitor_new(struct sw_xfer_agent *agent, struct rdma_cm_id *id,
                                    const struct xfe_session *as)
{
    for (uint32_t i = 0; i < agent->visitors_slots; i++) {
        if (agent->visitors[i])
            continue;
        struct xfe_session *session = xfe_session_enter(agent, as, xfe_origin_is_here(id));
        struct xfe_visitor *visitor = session ? mover_pages(sizeof(*visitor)) : NULL;
        if (!visitor)
            return NULL;
        visitor->source.kind = XFE_VISITOR;
        visitor->agent = agent;
        visitor->slot = i;
        visitor->id = id;
        visitor->device = xfe_device_find(agent, id->verbs);
        visitor->session = session;
        xfe_session_join(session);
        id->context = visitor;
        agent->visitors[i] = visitor;
        return visitor;
    }
    return NULL;
}

bool xfe_visitor_post_receive(struct xfe_visitor *visitor, uint32_t index)
{
    return mover_post_receive(visitor->id->qp, XFE_RECEIVE_WR | index, visitor->receives[index],
                              XFW_MESSAGE_MAX, visitor->mr->lkey);
}

bool xfe_visitor_make_queue(struct xfe_visitor *visitor)
{
    const struct xfe_device *device = visitor->device;
    const struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = SENDS,
                                                  .max_recv_wr = XFE_CREDITS,
                                                  .max_send_sge = 1,
                                                  .max_recv_sge = 1},
                                          .sq_sig_all = 1};
    if (!mover_queue_open(&visitor->queue, device->verbs, SENDS + XFE_CREDITS,
                          visitor->agent->epoll_fd, &visitor->source))
        return false;
    visitor->mr = ibv_reg_mr(device->pd, visitor, sizeof(*visitor), IBV_ACCESS_LOCAL_WRITE);
    if (!visitor->mr || !mover_queue_make_qp(&visitor->queue, visitor->id, device->pd, &attr))
        return false;
    for (uint32_t i = 0; i < XFE_CREDITS; i++)
        if (!xfe_visitor_post_receive(visitor, i))
            return false;
    return true;
}

void xfe_visitor_free(struct xfe_visitor *visitor)
{
    struct sw_xfer_agent *agent = visitor->agent;
    if (visitor->id->qp)
        rdma_destroy_qp(visitor->id);
    xfe_leases_of_lane_end(agent, visitor->session->number, visitor->lane);
    xfe_session_leave(agent, visitor->session);
    mover_queue_close(&visitor->queue);
    if (visitor->mr)
        ibv_dereg_mr(visitor->mr);
    visitor->id->context = NULL;
    agent->visitors[visitor->slot] = NULL;
    free(visitor);
}

void xfe_visitor_end(struct xfe_visitor *visitor)
{
    struct rdma_cm_id *id = visitor->id;
    visitor->agent->progress++;
    rdma_disconnect(id);
    xfe_visitor_free(visitor);
    rdma_destroy_id(id);
}

void xfe_visitors_end(struct sw_xfer_agent *agent)
{
    if (xfe_is_forked(agent)) /* the parent's devices have their pages, which a child may lack */
        return;
    for (uint32_t i = 0; i < agent->visitors_slots; i++)
        if (agent->visitors[i])
            xfe_visitor_end(agent->visitors[i]);
}
