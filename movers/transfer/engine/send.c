/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/send.h"

#include <stdio.h>
#include <string.h>

#include "common/time/clock.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/blocks.h"
#include "transfer/engine/lane.h"
#include "transfer/engine/memory.h"
#include "transfer/engine/notice.h"
#include "transfer/engine/peer.h"
#include "transfer/engine/sums.h"
#include "transfer/engine/transfer.h"

enum { POLLED_MAX = 16 };
static const uint64_t ACK_WR = 1ull << 63; /* wr_id of receives; sends have the flow's number */

static struct sw_xfer_transfer *send_transfer_of(struct xfc_task *task)
{
    return LIST_MEMBER(task, struct sw_xfer_transfer, task);
}

static bool send_post_receive(struct xfe_lane *lane, uint32_t index)
{
    return mover_post_receive(lane->connection.id->qp, ACK_WR | index, lane->scratch->acks[index],
                              XFW_ANSWER_MAX, lane->scratch_mr->lkey);
}

bool xfe_send_post_receives(struct xfe_lane *lane)
{
    for (uint32_t i = 0; i < XFE_CREDITS; i++)
        if (!send_post_receive(lane, i))
            return false;
    return true;
}

static uint32_t put_notice(const struct xfc_step *step, uint8_t *message)
{
    const struct sw_xfer_transfer *transfer = send_transfer_of(step->task);
    const struct xfw_message header = {
        .type = XFW_NOTICE, .tag = step->tag, .bytes = transfer->notice_bytes};
    memcpy(message + XFW_MESSAGE_HEADER_BYTES, transfer->notice, transfer->notice_bytes);
    return xfw_put_message(message, &header);
}

static uint32_t put_end(const struct sw_xfer_peer *peer, const struct xfc_step *step,
                        uint8_t *message)
{
    const struct xfw_message header = {.type = XFW_END, .tag = step->tag, .bytes = XFW_END_BYTES};
    const struct xfw_end end = {.lane = (uint8_t)step->first,
                                .count = (uint8_t)peer->lanes[step->first].connections};
    xfw_put_end(message, &end);
    return xfw_put_message(message, &header);
}

static uint32_t put_message(const struct xfe_lane *lane, const struct xfc_step *step,
                            uint8_t *message)
{
    if (step->kind == XFC_DROP)
        return put_end(lane->peer, step, message);
    return step->kind == XFC_SUMS
               ? xfe_sums_ask(send_transfer_of(step->task), step, lane->index, message)
               : put_notice(step, message);
}

/* A message whose buffer is used again has left: as many may be without an answer as there are
 * buffers, and one that is answered has come. */
static void send_fill_message(struct xfe_lane *lane, const struct xfc_step *step,
                              struct ibv_send_wr *wr, struct ibv_sge *sge)
{
    uint8_t *message = lane->scratch->notices[step->buffer];
    *sge = (struct ibv_sge){.addr = (uintptr_t)message,
                            .length = put_message(lane, step, message),
                            .lkey = lane->scratch_mr->lkey};
    *wr = (struct ibv_send_wr){.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    /* The peer may take back what was read as soon as it has the notice. */
    if (step->task && step->task->op == SW_XFER_READ)
        wr->send_flags = IBV_SEND_FENCE;
}

/* The plan has numbers of parts; this lane's device and the peer's have their own keys of them. */
static void send_fill_request(const struct xfe_lane *lane, const struct xfc_step *step,
                              struct ibv_send_wr *wr, struct ibv_sge *sges)
{
    const struct xfc_request *request = step->request;
    const struct sw_xfer_transfer *transfer = send_transfer_of(step->task);
    const struct ibv_sge *pieces = &step->task->plan->pieces[request->first_piece];
    const uint32_t device = xfe_device_index(lane->device);
    for (uint32_t i = 0; i < request->pieces; i++) {
        sges[i] = pieces[i];
        sges[i].lkey = transfer->local->memories[pieces[i].lkey]->mrs[device]->lkey;
    }
    *wr = (struct ibv_send_wr){
        .sg_list = sges,
        .num_sge = (int)request->pieces,
        .opcode = step->task->op == SW_XFER_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
        .wr.rdma = {.remote_addr = request->remote,
                    .rkey = transfer->remote->keys[request->key][lane->index]},
    };
}

/* What is posted together: lane->wrs. */
struct batch {
    uint32_t count;
    const struct xfc_task *unproven; /* iWARP: WRITEs of it are among them, with no READ behind */
    uint64_t number;                 /* the last of the flow's */
};

/* Over iWARP a WRITE is complete when TCP has it. A READ of nothing behind it is answered once its
 * bytes are in place (RFC 5040 s5.5), and needs no right to read. Each task has its own, so that
 * the one that was refused is known. */
static void add_proof(struct xfe_lane *lane, struct batch *batch)
{
    lane->wrs[batch->count++] = (struct ibv_send_wr){
        .wr_id = batch->number, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED};
    batch->unproven = NULL;
}

static void add_step(struct xfe_lane *lane, struct batch *batch, const struct xfc_step *step,
                     struct ibv_sge *sges)
{
    if (batch->unproven && batch->unproven != step->task)
        add_proof(lane, batch);
    struct ibv_send_wr *wr = &lane->wrs[batch->count++];
    if (step->request)
        send_fill_request(lane, step, wr, sges);
    else
        send_fill_message(lane, step, wr, sges);
    wr->wr_id = batch->number = step->number;
    if (xfe_lane_is_iwarp(lane) && wr->opcode == IBV_WR_RDMA_WRITE)
        batch->unproven = step->task;
}

static bool post_batch(struct xfe_lane *lane, struct batch *batch)
{
    struct ibv_send_wr *bad;
    if (batch->unproven)
        add_proof(lane, batch);
    lane->wrs[batch->count - 1].send_flags |= IBV_SEND_SIGNALED;
    for (uint32_t i = 1; i < batch->count; i++)
        lane->wrs[i - 1].next = &lane->wrs[i];
    return !ibv_post_send(lane->connection.id->qp, lane->wrs, &bad);
}

/* Several lanes get a slice each in turn, so that all have something of what is little. */
bool xfe_send_push(struct xfe_lane *lane)
{
    struct xfc_flow *flow = &lane->peer->flow;
    const uint32_t most = lane->peer->lanes_count > 1 ? XFC_SLICE_REQUESTS : XFE_LIST;
    const uint64_t bytes_most = lane->peer->lanes_count > 1 ? XFC_SLICE_BYTES : UINT64_MAX;
    struct batch batch = {0};
    struct xfc_step step;
    uint32_t count = 0;
    uint64_t bytes = 0;
    const bool was_idle = !xfc_flow_waits(flow, lane->index);
    while (count < most && bytes < bytes_most && xfc_flow_next(flow, lane->index, &step)) {
        add_step(lane, &batch, &step, lane->sges[count]);
        bytes += step.request ? step.request->bytes : 0;
        if (count++ % XFE_SIGNAL == XFE_SIGNAL - 1 && !batch.unproven)
            lane->wrs[batch.count - 1].send_flags |= IBV_SEND_SIGNALED;
    }
    if (!count)
        return false;
    if (was_idle)
        lane->progress_ns = mover_now_ns();
    if (!post_batch(lane, &batch))
        lane->has_broken = true;
    return !lane->has_broken && (count == most || bytes >= bytes_most);
}

/* What an answer has to be. */
static bool is_answer(const struct xfw_message *message, const struct xfc_out *out)
{
    switch (out->kind) {
    case XFC_NOTICE:
        return message->type == XFW_ACK;
    case XFC_SUMS:
        return message->type == XFW_SUMS;
    case XFC_DROP:
        return message->type == XFW_ENDED;
    case XFC_REQUEST:
        return false;
    }
    return false;
}

/* The peer lets go of what the lane had before. It may have been lost once more since. */
static void take_ended(struct sw_xfer_peer *peer, const struct xfc_out *out)
{
    struct xfe_lane *lane = &peer->lanes[out->first];
    if (!lane->is_dirty || out->count < lane->dirty_resets)
        return;
    lane->is_dirty = false;
    xfc_flow_settled(&peer->flow, out->first);
}

static void send_take_answer(struct xfe_lane *lane, const struct ibv_wc *wc)
{
    struct sw_xfer_peer *peer = lane->peer;
    struct xfw_message message;
    struct xfc_out out;
    const uint32_t index = (uint32_t)wc->wr_id;
    const uint8_t *bytes = lane->scratch->acks[index];
    if (!xfw_get_message(bytes, wc->byte_len, &message) ||
        !xfc_flow_answered(&peer->flow, message.tag, &out) || !is_answer(&message, &out))
        return xfe_peer_gone(peer, SW_XFER_PROTOCOL, "%s sends what is no answer", lane->where);
    if (out.kind == XFC_DROP)
        take_ended(peer, &out);
    else if (out.task && out.kind == XFC_NOTICE)
        xfc_flow_notice_taken(&peer->flow, out.task, mover_now_ns());
    else if (out.task)
        xfc_flow_summed(&peer->flow, out.task, out.first + out.count,
                        xfe_sums_compare(out.task->plan, &out, bytes, message.bytes),
                        mover_now_ns());
    if (!send_post_receive(lane, index))
        lane->has_broken = true;
}

/* Which fault is the request's own, and not the connection's. */
static enum sw_xfer_status send_fault_of(enum ibv_wc_status status)
{
    if (status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR)
        return SW_XFER_DENIED;
    if (status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_LOC_LEN_ERR ||
        status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_LOC_ACCESS_ERR ||
        status == IBV_WC_REM_OP_ERR)
        return SW_XFER_SYSTEM;
    return SW_XFER_OK;
}

/* Behind WRITEs over iWARP the READ that proves them is refused: any of them may be at fault. */
static uint64_t find_refused(const struct xfe_lane *lane, uint64_t number)
{
    const struct xfc_lane *given = &lane->peer->flow.lanes[lane->index];
    const struct xfc_task *task = given->ring[number % given->depth].task;
    uint64_t first = number;
    if (!xfe_lane_is_iwarp(lane) || !task || task->op != SW_XFER_WRITE)
        return number;
    while (first > given->confirmed && given->ring[(first - 1) % given->depth].task == task)
        first--;
    return first;
}

static void take_failure(struct xfe_lane *lane, const struct ibv_wc *wc)
{
    const bool is_send = !(wc->wr_id & ACK_WR);
    const enum sw_xfer_status fault = is_send ? send_fault_of(wc->status) : SW_XFER_OK;
    if (!fault) {
        char what[80];
        snprintf(what, sizeof(what), "it does not answer any more (%s)",
                 ibv_wc_status_str(wc->status));
        return xfe_peer_lane_lost(lane, SW_XFER_PEER_GONE, what);
    }
    xfc_flow_refused(&lane->peer->flow, lane->index, find_refused(lane, wc->wr_id), fault,
                     mover_now_ns());
    xfe_lane_restart(lane);
}

/* False: the queue pair is gone. */
static bool send_take_completion(struct xfe_lane *lane, const struct ibv_wc *wc)
{
    lane->peer->agent->progress++;
    if (wc->status) {
        take_failure(lane, wc);
        return false;
    }
    if (wc->wr_id & ACK_WR) {
        send_take_answer(lane, wc);
        return lane->connection.queue.cq;
    }
    lane->progress_ns = mover_now_ns();
    xfc_flow_confirm(&lane->peer->flow, lane->index, wc->wr_id, lane->progress_ns);
    return true;
}

void xfe_send_poll(struct xfe_lane *lane)
{
    struct ibv_wc wcs[POLLED_MAX];
    const int count = mover_queue_poll(&lane->connection.queue, POLLED_MAX, wcs);
    for (int i = 0; i < count; i++)
        if (!send_take_completion(lane, &wcs[i]))
            return;
}
