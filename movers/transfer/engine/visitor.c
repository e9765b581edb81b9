/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/visitor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/rdma/memory.h"
#include "common/rdma/queue.h"
#include "common/serve/origin.h"
#include "common/time/clock.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/device.h"
#include "transfer/engine/lease.h"
#include "transfer/engine/notice.h"
#include "transfer/engine/origin.h"
#include "transfer/engine/rail.h"
#include "transfer/engine/session.h"
#include "transfer/engine/source.h"
#include "transfer/engine/sums.h"

enum { READS_MAX = 16, SENDS = XFE_CREDITS + 2, WINDOW_MS = 500, TURN = 64 /* completions */ };
/* That are summed in a turn: half a millisecond. */
static const uint64_t TURN_BYTES = 4 << 20;
static const uint64_t RECEIVE_WR = 1ull << 63, WINDOW_WR = 1ull << 62;

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

uint64_t xfe_visitor_number(const struct xfe_visitor *visitor)
{
    return visitor->session->number;
}

uint32_t xfe_visitor_lane(const struct xfe_visitor *visitor)
{
    return visitor->lane;
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

/* ---- its beginning and its end ---- */

static bool visitor_post_receive(struct xfe_visitor *visitor, uint32_t index)
{
    return mover_post_receive(visitor->id->qp, RECEIVE_WR | index, visitor->receives[index],
                              XFW_MESSAGE_MAX, visitor->mr->lkey);
}

static bool visitor_make_queue(struct xfe_visitor *visitor)
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
        if (!visitor_post_receive(visitor, i))
            return false;
    return true;
}

/* Frees all but the id. Windows can be freed once their queue pair is gone. */
static void free_visitor(struct xfe_visitor *visitor)
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
    free_visitor(visitor);
    rdma_destroy_id(id);
}

void xfe_visitors_end(struct sw_xfer_agent *agent)
{
    for (uint32_t i = 0; i < agent->visitors_slots; i++)
        if (agent->visitors[i] && xfe_is_forked(agent))
            free(agent->visitors[i]);
        else if (agent->visitors[i])
            xfe_visitor_end(agent->visitors[i]);
}

/* ---- its request for a connection ---- */

static void reject_request(struct rdma_cm_id *id, enum xfw_reason reason)
{
    uint8_t why[XFW_REJECT_BYTES];
    xfw_put_reject(why, reason);
    rdma_reject(id, why, sizeof(why));
    rdma_destroy_id(id);
}

static enum xfw_reason check_request(const struct sw_xfer_agent *agent, const uint8_t *data,
                                     size_t bytes, struct xfw_connect *hello)
{
    const enum xfw_reason reason = xfw_get_connect(data, bytes, hello);
    if (reason)
        return reason;
    if (hello->lane >= agent->rails_count)
        return XFW_REASON_MALFORMED;
    if (memcmp(hello->called, agent->instance, sizeof(hello->called)) != 0)
        return XFW_REASON_INSTANCE;
    if (hello->layout && agent->options.layout && hello->layout != agent->options.layout)
        return XFW_REASON_LAYOUT;
    return 0;
}

static struct xfe_visitor *new_visitor(struct sw_xfer_agent *agent, struct rdma_cm_id *id,
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
        session->origin->sessions += !session->lanes;
        session->lanes++;
        id->context = visitor;
        agent->visitors[i] = visitor;
        return visitor;
    }
    return NULL;
}

/* Finds the visitor of that lane of the session; NULL: there is none. */
static struct xfe_visitor *visitor_find_lane(const struct sw_xfer_agent *agent,
                                             const struct xfe_session *session, uint8_t lane)
{
    for (uint32_t i = 0; i < agent->visitors_slots; i++)
        if (agent->visitors[i] && agent->visitors[i]->lane == lane &&
            xfe_session_is(agent->visitors[i]->session, session))
            return agent->visitors[i];
    return NULL;
}

/* rdma_accept() answers at once. Windows are bound before that, as the peer may use them then. */
static bool bind_windows(struct xfe_visitor *visitor, uint8_t reads)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
    struct ibv_qp *qp = visitor->id->qp;
    int mask;
    if (rdma_init_qp_attr(visitor->id, &attr, &mask))
        return false;
    attr.max_dest_rd_atomic = reads;
    if (ibv_modify_qp(qp, &attr, mask))
        return false;
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
    if (rdma_init_qp_attr(visitor->id, &attr, &mask))
        return false;
    attr.max_rd_atomic = 0;
    return !ibv_modify_qp(qp, &attr, mask) && xfe_leases_of_lane_bind(visitor->agent, visitor);
}

static bool accept_visitor(struct xfe_visitor *visitor, uint8_t reads, bool is_ready)
{
    struct xfw_accept accept = {
        .notices = XFE_CREDITS, .notice_bytes_max = SW_XFER_NOTICE_MAX, .abilities = XFW_CAN_SUM};
    memcpy(accept.instance, visitor->agent->instance, sizeof(accept.instance));
    uint8_t answer[XFW_ACCEPT_BYTES];
    xfw_put_accept(answer, &accept);
    struct rdma_conn_param param = {
        .private_data = answer,
        .private_data_len = sizeof(answer),
        .responder_resources = reads,
        .rnr_retry_count = 7,
    };
    struct ibv_qp *qp = visitor->id->qp;
    param.qp_num = qp->qp_num;
    if (is_ready) /* rdma_accept() would begin anew with it */
        visitor->id->qp = NULL;
    const bool is_accepted = !rdma_accept(visitor->id, &param);
    visitor->id->qp = qp;
    return is_accepted;
}

static void visitor_take_request(struct sw_xfer_agent *agent, const struct mover_arrival *request)
{
    const struct rdma_conn_param *asked = &request->param;
    const uint8_t reads =
        asked->responder_resources < READS_MAX ? asked->responder_resources : (uint8_t)READS_MAX;
    struct rdma_cm_id *id = request->id;
    struct xfw_connect hello;
    struct xfe_session session = {.session = 0};
    id->context = NULL;
    const enum xfw_reason reason =
        check_request(agent, asked->private_data, asked->private_data_len, &hello);
    if (reason)
        return reject_request(id, reason);
    session.session = hello.session;
    const struct in6_addr from = mover_origin_of_peer(rdma_get_peer_addr(id));
    session.origin = xfe_origin_of(agent, &from);
    memcpy(session.instance, hello.calling, sizeof(session.instance));
    /* Nothing of the lane's earlier queue pair may be taken once the new one is accepted. */
    struct xfe_visitor *earlier = visitor_find_lane(agent, &session, hello.lane);
    if (earlier && xfw_is_earlier(hello.count, earlier->count))
        return reject_request(id, XFW_REASON_MALFORMED); /* it came late */
    if (earlier)
        xfe_visitor_end(earlier);
    if (!xfe_device_find(agent, id->verbs))
        return reject_request(id, XFW_REASON_MEMORY);
    struct xfe_visitor *visitor = new_visitor(agent, id, &session);
    if (!visitor)
        return reject_request(id, XFW_REASON_MANY);
    visitor->lane = hello.lane;
    visitor->count = hello.count;
    const bool has_windows = xfe_leases_have_windows(agent, visitor->session->number);
    if (!visitor_make_queue(visitor) || (has_windows && !bind_windows(visitor, reads))) {
        free_visitor(visitor);
        return reject_request(id, XFW_REASON_MEMORY);
    }
    if (!accept_visitor(visitor, reads, has_windows)) {
        free_visitor(visitor);
        rdma_destroy_id(id);
    }
}

void xfe_visitors_events(struct sw_xfer_agent *agent)
{
    struct mover_arrival arrival;
    struct xfe_visitor *ended;
    while (agent->events && mover_listener_next(agent->events, &arrival)) {
        agent->progress++;
        if (arrival.type == RDMA_CM_EVENT_CONNECT_REQUEST)
            visitor_take_request(agent, &arrival);
        else if (!xfe_rails_take(agent, &arrival) && (ended = mover_arrival_ended(&arrival)))
            xfe_visitor_end(ended);
    }
    xfe_rails_tick(agent);
}

/* ---- its notices ---- */

/* False: what it sent ends the connection. */
static bool send_answer(struct xfe_visitor *visitor, uint32_t index, uint32_t bytes)
{
    return visitor_post_receive(visitor, index) &&
           mover_post_send(visitor->id->qp, 0, visitor->acks[index], bytes, visitor->mr->lkey, 0);
}

static bool visitor_send_ack(struct xfe_visitor *visitor, uint32_t index, uint64_t tag)
{
    const struct xfw_message ack = {.type = XFW_ACK, .tag = tag};
    return send_answer(visitor, index, xfw_put_message(visitor->acks[index], &ack));
}

/* Until they are all made, or the turn is over. */
static bool go_on_summing(struct xfe_visitor *visitor, uint64_t *left_bytes)
{
    const uint32_t index = visitor->summing;
    struct xfw_message message;
    xfw_get_message(visitor->receives[index], visitor->lengths[index], &message);
    const uint32_t bytes = xfe_sums_answer(visitor->agent, visitor->session->number, visitor->lane,
                                           visitor->receives[index], &message, &visitor->summed,
                                           left_bytes, visitor->acks[index]);
    visitor->is_summing = !bytes;
    return !bytes || send_answer(visitor, index, bytes);
}

/* Its lost lanes: once this is answered, nothing of them is taken any more. */
static bool end_lane(struct xfe_visitor *visitor, uint32_t index, const struct xfw_message *message)
{
    const struct xfw_message ended = {.type = XFW_ENDED, .tag = message->tag};
    struct xfw_end end;
    xfw_get_end(visitor->receives[index], &end);
    struct xfe_visitor *lost = visitor_find_lane(visitor->agent, visitor->session, end.lane);
    if (lost == visitor)
        return false;
    if (lost && xfw_is_earlier(lost->count, end.count))
        xfe_visitor_end(lost);
    return send_answer(visitor, index, xfw_put_message(visitor->acks[index], &ended));
}

enum verdict { TAKEN, NO_ROOM, BROKEN };

static enum verdict take_notice(struct xfe_visitor *visitor, uint32_t index)
{
    const uint8_t *bytes = visitor->receives[index];
    struct xfw_message message;
    if (!xfw_get_message(bytes, visitor->lengths[index], &message) || message.type != XFW_NOTICE)
        return BROKEN;
    if (message.tag > visitor->session->last_tag) {
        struct sw_xfer_notice *notice = xfe_notices_room(visitor->agent, visitor->session);
        if (!notice)
            return NO_ROOM;
        notice->visitor = visitor->session->number;
        notice->bytes = message.bytes;
        memcpy(notice->instance, visitor->session->instance, sizeof(notice->instance));
        memcpy(notice->data, bytes + XFW_MESSAGE_HEADER_BYTES, message.bytes);
        xfe_notices_add(visitor->agent, visitor->session);
        visitor->session->last_tag = message.tag;
    }
    return visitor_send_ack(visitor, index, message.tag) ? TAKEN : BROKEN;
}

/* Takes those that wait first: notices of a visitor are taken in their order. */
static bool take_waiting(struct xfe_visitor *visitor)
{
    uint32_t taken = 0;
    enum verdict verdict = TAKEN;
    while (taken < visitor->waiting_count && verdict == TAKEN) {
        verdict = take_notice(visitor, visitor->waiting[taken]);
        taken += verdict == TAKEN;
    }
    visitor->waiting_count -= taken;
    memmove(visitor->waiting, visitor->waiting + taken, visitor->waiting_count);
    return verdict != BROKEN;
}

static bool visitor_take_completion(struct xfe_visitor *visitor, const struct ibv_wc *wc)
{
    if (wc->wr_id & WINDOW_WR && !(wc->wr_id & RECEIVE_WR)) {
        visitor->window_done = !wc->status;
        return visitor->window_done;
    }
    if (wc->status)
        return false;
    if (!(wc->wr_id & RECEIVE_WR))
        return true;
    const uint32_t index = (uint32_t)wc->wr_id;
    struct xfw_message message;
    visitor->lengths[index] = wc->byte_len;
    /* These need no room, so they do not wait behind notices that do. */
    const bool is_message = xfw_get_message(visitor->receives[index], wc->byte_len, &message);
    if (is_message && message.type == XFW_SUM) {
        visitor->is_summing = true;
        visitor->summing = index;
        visitor->summed = 0;
        return true;
    }
    if (is_message && message.type == XFW_END)
        return end_lane(visitor, index, &message);
    visitor->waiting[visitor->waiting_count++] = (uint8_t)index;
    return take_waiting(visitor);
}

/* A turn: a visitor that always has something to say leaves time to others. */
static bool visitor_poll_queue(struct xfe_visitor *visitor)
{
    uint64_t left_bytes = TURN_BYTES;
    struct ibv_wc wc;
    visitor->has_more = false;
    for (int i = 0; i < TURN; i++) {
        if (visitor->is_summing && !go_on_summing(visitor, &left_bytes))
            return false;
        if (visitor->is_summing)
            break;
        if (mover_queue_poll(&visitor->queue, 1, &wc) < 1)
            return true;
        if (!visitor_take_completion(visitor, &wc))
            return false;
    }
    visitor->has_more = visitor->agent->has_more = true;
    return true;
}

void xfe_visitor_ready(struct xfe_visitor *visitor)
{
    visitor->agent->progress++;
    if (!mover_queue_rearm(&visitor->queue) || !visitor_poll_queue(visitor))
        xfe_visitor_end(visitor);
}

void xfe_visitors_go_on(struct sw_xfer_agent *agent)
{
    if (!agent->has_more)
        return;
    agent->has_more = false;
    agent->progress++;
    for (uint32_t i = 0; i < agent->visitors_slots; i++) {
        struct xfe_visitor *visitor = agent->visitors[i];
        if (visitor && visitor->has_more && !visitor_poll_queue(visitor))
            xfe_visitor_end(visitor);
    }
}

void xfe_visitors_retry(struct sw_xfer_agent *agent)
{
    for (uint32_t i = 0; i < agent->visitors_slots; i++) {
        struct xfe_visitor *visitor = agent->visitors[i];
        if (visitor && visitor->waiting_count && !take_waiting(visitor))
            xfe_visitor_end(visitor);
    }
}

int xfe_visitor_window(struct xfe_visitor *visitor, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    const uint64_t deadline_ns = sw_xfer_deadline_ms(WINDOW_MS);
    bool is_fine = true;
    wr->wr_id = WINDOW_WR;
    visitor->window_done = false;
    if (ibv_post_send(visitor->id->qp, wr, &bad))
        return -EOPNOTSUPP;
    while (is_fine && !visitor->window_done && mover_now_ns() < deadline_ns)
        is_fine = visitor_poll_queue(visitor);
    return is_fine && visitor->window_done ? 0 : -EPIPE;
}
