/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/message.h"

#include <string.h>

#include "transfer/engine/agent.h"
#include "transfer/engine/notice.h"
#include "transfer/engine/session.h"
#include "transfer/engine/sums.h"
#include "transfer/engine/visitor.h"

enum { TURN = 64 /* completions */ };
/* That are summed in a turn: half a millisecond. */
static const uint64_t TURN_BYTES = 4 << 20;

/* False: what it sent ends the connection. */
static bool send_answer(struct xfe_visitor *visitor, uint32_t index, uint32_t bytes)
{
    return xfe_visitor_post_receive(visitor, index) &&
           mover_post_send(visitor->id->qp, 0, visitor->acks[index], bytes, visitor->mr->lkey, 0);
}

static bool message_send_ack(struct xfe_visitor *visitor, uint32_t index, uint64_t tag)
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
    struct xfe_visitor *lost = xfe_visitor_find(visitor->agent, visitor->session, end.lane);
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
    return message_send_ack(visitor, index, message.tag) ? TAKEN : BROKEN;
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

static bool message_take_completion(struct xfe_visitor *visitor, const struct ibv_wc *wc)
{
    if (wc->wr_id & XFE_WINDOW_WR && !(wc->wr_id & XFE_RECEIVE_WR)) {
        visitor->window_done = !wc->status;
        return visitor->window_done;
    }
    if (wc->status)
        return false;
    if (!(wc->wr_id & XFE_RECEIVE_WR))
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

/* A visitor that always has something to say leaves time to others. */
bool xfe_messages_take(struct xfe_visitor *visitor)
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
        if (!message_take_completion(visitor, &wc))
            return false;
    }
    visitor->has_more = visitor->agent->has_more = true;
    return true;
}

void xfe_messages_ready(struct xfe_visitor *visitor)
{
    visitor->agent->progress++;
    if (!mover_queue_rearm(&visitor->queue) || !xfe_messages_take(visitor))
        xfe_visitor_end(visitor);
}

void xfe_messages_go_on(struct sw_xfer_agent *agent)
{
    if (!agent->has_more)
        return;
    agent->has_more = false;
    agent->progress++;
    for (uint32_t i = 0; i < agent->visitors_slots; i++) {
        struct xfe_visitor *visitor = agent->visitors[i];
        if (visitor && visitor->has_more && !xfe_messages_take(visitor))
            xfe_visitor_end(visitor);
    }
}

/* Notices that had no room. */
static void messages_retry(struct sw_xfer_agent *agent)
{
    for (uint32_t i = 0; i < agent->visitors_slots; i++) {
        struct xfe_visitor *visitor = agent->visitors[i];
        if (visitor && visitor->waiting_count && !take_waiting(visitor))
            xfe_visitor_end(visitor);
    }
}

enum sw_xfer_status sw_xfer_notice_take(struct sw_xfer_agent *agent, struct sw_xfer_notice *notice)
{
    if (xfe_is_forked(agent))
        return SW_XFER_FORKED;
    if (!xfe_notices_first(agent, notice))
        return SW_XFER_AGAIN;
    messages_retry(agent);
    return SW_XFER_OK;
}

enum sw_xfer_status sw_xfer_notice_match(struct sw_xfer_agent *agent, uint64_t visitor,
                                         const void *data, uint32_t bytes,
                                         struct sw_xfer_notice *notice)
{
    if (xfe_is_forked(agent))
        return SW_XFER_FORKED;
    if (!xfe_notices_match(agent, visitor, data, bytes, notice))
        return SW_XFER_AGAIN;
    messages_retry(agent);
    return SW_XFER_OK;
}
