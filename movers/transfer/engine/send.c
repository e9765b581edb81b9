/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the flow of a peer and its queue pair. */
#include <string.h>

#include "common/clock.h"
#include "transfer/engine/engine.h"

enum { POLLED_MAX = 16 };
static const uint64_t ACK_WR = 1ull << 63; /* wr_id of receives; sends have the flow's number */

static struct sw_xfer_transfer *transfer_of(struct xfc_task *task)
{
    return LIST_MEMBER(task, struct sw_xfer_transfer, task);
}

static bool post_receive(struct sw_xfer_peer *peer, uint32_t index)
{
    struct ibv_sge sge = {.addr = (uintptr_t)peer->scratch->acks[index],
                          .length = XFW_ANSWER_MAX,
                          .lkey = peer->scratch_mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = ACK_WR | index, .sg_list = &sge, .num_sge = 1}, *bad;
    return !ibv_post_recv(peer->connection.id->qp, &wr, &bad);
}

bool xfe_send_post_receives(struct sw_xfer_peer *peer)
{
    for (uint32_t i = 0; i < XFE_CREDITS; i++)
        if (!post_receive(peer, i))
            return false;
    return true;
}

static uint32_t put_notice(const struct xfc_step *step, uint8_t *message)
{
    const struct sw_xfer_transfer *transfer = transfer_of(step->task);
    const struct xfw_message header = {
        .type = XFW_NOTICE, .tag = step->tag, .bytes = transfer->notice_bytes};
    memcpy(message + XFW_MESSAGE_HEADER_BYTES, transfer->notice, transfer->notice_bytes);
    return xfw_put_message(message, &header);
}

/* A message whose buffer is used again has left: as many may be without an answer as there are
 * buffers, and one that is answered has come. */
static void fill_message(struct sw_xfer_peer *peer, const struct xfc_step *step,
                         struct ibv_send_wr *wr, struct ibv_sge *sge)
{
    uint8_t *message = peer->scratch->notices[step->buffer];
    const uint32_t bytes = step->kind == XFC_SUMS ? xfe_sums_ask(step->task->plan, step, message)
                                                  : put_notice(step, message);
    *sge = (struct ibv_sge){
        .addr = (uintptr_t)message, .length = bytes, .lkey = peer->scratch_mr->lkey};
    *wr = (struct ibv_send_wr){.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    /* The peer may take back what was read as soon as it has the notice. */
    if (step->task->op == SW_XFER_READ)
        wr->send_flags = IBV_SEND_FENCE;
}

static void fill_request(const struct xfc_step *step, struct ibv_send_wr *wr)
{
    const struct xfc_request *request = step->request;
    *wr = (struct ibv_send_wr){
        .sg_list = &step->task->plan->pieces[request->first_piece],
        .num_sge = (int)request->pieces,
        .opcode = step->task->op == SW_XFER_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
        .wr.rdma = {.remote_addr = request->remote, .rkey = request->key},
    };
}

void xfe_send_push(struct sw_xfer_peer *peer)
{
    struct ibv_send_wr *bad;
    struct xfc_step step;
    uint32_t count = 0;
    const bool was_idle = !xfc_flow_waits(&peer->flow, 0);
    while (count < XFE_LIST && xfc_flow_next(&peer->flow, 0, &step)) {
        struct ibv_send_wr *wr = &peer->wrs[count];
        if (step.request)
            fill_request(&step, wr);
        else
            fill_message(peer, &step, wr, &peer->notice_sges[count]);
        wr->wr_id = step.number;
        if (count % XFE_SIGNAL == XFE_SIGNAL - 1)
            wr->send_flags |= IBV_SEND_SIGNALED;
        if (count)
            wr[-1].next = wr;
        count++;
    }
    peer->has_more = count == XFE_LIST;
    if (!count)
        return;
    peer->wrs[count - 1].send_flags |= IBV_SEND_SIGNALED;
    if (was_idle)
        peer->progress_ns = mover_now_ns();
    if (ibv_post_send(peer->connection.id->qp, peer->wrs, &bad))
        peer->has_broken = true;
}

static void take_ack(struct sw_xfer_peer *peer, const struct ibv_wc *wc)
{
    struct xfw_message message;
    struct xfc_out out;
    const uint32_t index = (uint32_t)wc->wr_id;
    const uint8_t *bytes = peer->scratch->acks[index];
    if (!xfw_get_message(bytes, wc->byte_len, &message) ||
        !xfc_flow_answered(&peer->flow, message.tag, &out) ||
        message.type != (out.kind == XFC_SUMS ? XFW_SUMS : XFW_ACK))
        return xfe_peer_gone(peer, SW_XFER_PROTOCOL, "%s sends what is no answer", peer->where);
    if (out.task && out.kind == XFC_NOTICE)
        xfc_flow_notice_taken(&peer->flow, out.task, mover_now_ns());
    else if (out.task)
        xfc_flow_summed(&peer->flow, out.task, out.first + out.count,
                        xfe_sums_compare(out.task->plan, &out, bytes, message.bytes),
                        mover_now_ns());
    if (!post_receive(peer, index))
        peer->has_broken = true;
}

/* Which fault is the request's own, and not the connection's. */
static enum sw_xfer_status fault_of(enum ibv_wc_status status)
{
    if (status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR)
        return SW_XFER_DENIED;
    if (status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_LOC_LEN_ERR ||
        status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_LOC_ACCESS_ERR ||
        status == IBV_WC_REM_OP_ERR)
        return SW_XFER_SYSTEM;
    return SW_XFER_OK;
}

static void take_failure(struct sw_xfer_peer *peer, const struct ibv_wc *wc)
{
    const bool is_send = !(wc->wr_id & ACK_WR);
    const enum sw_xfer_status fault = is_send ? fault_of(wc->status) : SW_XFER_OK;
    if (!fault)
        return xfe_peer_gone(peer, SW_XFER_PEER_GONE, "%s does not answer any more (%s)",
                             peer->where, ibv_wc_status_str(wc->status));
    xfc_flow_refused(&peer->flow, 0, wc->wr_id, fault, mover_now_ns());
    xfe_peer_restart(peer);
}

/* False: the queue pair is gone. */
static bool take_completion(struct sw_xfer_peer *peer, const struct ibv_wc *wc)
{
    peer->agent->progress++;
    if (wc->status) {
        take_failure(peer, wc);
        return false;
    }
    if (wc->wr_id & ACK_WR) {
        take_ack(peer, wc);
        return peer->connection.cq;
    }
    peer->progress_ns = mover_now_ns();
    xfc_flow_confirm(&peer->flow, 0, wc->wr_id, peer->progress_ns);
    return true;
}

void xfe_send_poll(struct sw_xfer_peer *peer)
{
    struct ibv_wc wcs[POLLED_MAX];
    if (!peer->connection.cq)
        return;
    if (peer->has_stash) {
        peer->has_stash = false;
        wcs[0] = peer->stash;
        if (!take_completion(peer, &wcs[0]))
            return;
    }
    const int count = ibv_poll_cq(peer->connection.cq, POLLED_MAX, wcs);
    for (int i = 0; i < count; i++)
        if (!take_completion(peer, &wcs[i]))
            return;
    if (peer->state == SW_XFER_LIVE)
        xfe_send_push(peer);
}
