/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "common/time/clock.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/blocks.h"
#include "transfer/engine/memory.h"
#include "transfer/engine/peer.h"
#include "transfer/engine/status.h"
#include "transfer/wire/message.h"

static bool transfer_add_pair(struct sw_xfer_transfer *t, uint32_t local_at, uint32_t remote_at)
{
    if (local_at >= t->local->count || remote_at >= t->remote->count)
        return false;
    const struct xfe_block *local = &t->local->all[local_at], *remote = &t->remote->all[remote_at];
    if (local->bytes != remote->bytes ||
        t->plan.requests_count + xfc_requests_of(local->bytes) > t->plan.requests_max)
        return false;
    const struct xfc_pair pair = {.local = local->address,
                                  .remote = remote->address,
                                  .bytes = local->bytes,
                                  .local_key = local->part, /* each lane has its keys */
                                  .remote_key = remote->part};
    xfc_plan_add(&t->plan, &pair);
    return true;
}

static bool plan_whole(struct sw_xfer_transfer *t)
{
    if (t->is_whole)
        return true;
    xfc_plan_clear(&t->plan);
    if (t->local->count != t->remote->count)
        return false;
    for (uint32_t i = 0; i < t->local->count; i++)
        if (!transfer_add_pair(t, i, i))
            return false;
    t->is_whole = true;
    return true;
}

static bool plan_by_index(struct sw_xfer_transfer *t, const struct sw_xfer_post_options *options)
{
    t->is_whole = false;
    xfc_plan_clear(&t->plan);
    for (uint32_t i = 0; i < options->count; i++)
        if (!transfer_add_pair(t, options->local_index ? options->local_index[i] : i,
                               options->remote_index ? options->remote_index[i] : i))
            return false;
    return true;
}

static enum sw_xfer_status check_pair(const struct sw_xfer_peer *peer, enum sw_xfer_op op,
                                      const struct sw_xfer_blocks *local,
                                      const struct sw_xfer_blocks *remote,
                                      struct sw_xfer_error *error)
{
    if (op == SW_XFER_NOTIFY)
        return local || remote ? xfe_fail(error, SW_XFER_INVALID, "a notice alone has no blocks")
                               : SW_XFER_OK;
    if ((op != SW_XFER_READ && op != SW_XFER_WRITE) || !local || !remote || local->peer ||
        remote->peer != peer || local->agent != peer->agent)
        return xfe_fail(error, SW_XFER_INVALID,
                        "a transfer has blocks of this agent and blocks of this peer");
    if (!(remote->rights & (op == SW_XFER_READ ? SW_XFER_MAY_READ : SW_XFER_MAY_WRITE)))
        return xfe_fail(error, SW_XFER_DENIED, "%s", sw_xfer_status_text(SW_XFER_DENIED));
    if (op == SW_XFER_READ && !(local->rights & SW_XFER_MAY_WRITE))
        return xfe_fail(error, SW_XFER_DENIED, "the local memory can only be read");
    return SW_XFER_OK;
}

static enum sw_xfer_status make_plan(struct sw_xfer_transfer *t, struct sw_xfer_error *error)
{
    const uint64_t requests =
        t->local->requests > t->remote->requests ? t->local->requests : t->remote->requests;
    if (!xfc_plan_make(&t->plan, (uint32_t)requests, t->peer->agent->pieces_max, t->task.has_sums))
        return xfe_fail(error, SW_XFER_NO_MEMORY, "no memory for %u requests", (uint32_t)requests);
    if (t->local->count == t->remote->count && !plan_whole(t)) {
        const uint32_t at = t->plan.blocks;
        xfc_plan_free(&t->plan);
        return xfe_fail(error, SW_XFER_INVALID, "the blocks %u differ in length", at);
    }
    return SW_XFER_OK;
}

/* Both sides' processors have to see it, and a sum tells what bytes are. */
static enum sw_xfer_status check_sums(const struct sw_xfer_peer *peer,
                                      const struct sw_xfer_blocks *local,
                                      const struct sw_xfer_blocks *remote,
                                      struct sw_xfer_error *error)
{
    if (!local)
        return xfe_fail(error, SW_XFER_INVALID, "a notice alone has no sums");
    if (!(remote->rights & SW_XFER_MAY_READ))
        return xfe_fail(error, SW_XFER_DENIED, "sums need the right to read");
    for (uint32_t i = 0; i < local->parts; i++)
        if (!local->memories[i]->at.data)
            return xfe_fail(error, SW_XFER_NOT_SUPPORTED, "the processor does not see this memory");
    if (!peer->was_live)
        return xfe_fail(error, SW_XFER_AGAIN,
                        "the abilities of the peer are not known before it is live");
    if (!(peer->abilities & XFW_CAN_SUM))
        return xfe_fail(error, SW_XFER_NOT_SUPPORTED, "the peer knows no sums");
    return SW_XFER_OK;
}

static enum sw_xfer_status prepare_pair(struct sw_xfer_peer *peer, enum sw_xfer_op op,
                                        struct sw_xfer_blocks *local, struct sw_xfer_blocks *remote,
                                        bool has_sums, struct sw_xfer_error *error,
                                        struct sw_xfer_transfer **out)
{
    if (xfe_is_forked(peer->agent))
        return xfe_fail(error, SW_XFER_FORKED, "%s", sw_xfer_status_text(SW_XFER_FORKED));
    enum sw_xfer_status status = check_pair(peer, op, local, remote, error);
    if (status)
        return status;
    if (has_sums)
        status = check_sums(peer, local, remote, error);
    if (status)
        return status;
    if (!peer->agent->devices_count)
        return xfe_fail(error, SW_XFER_AGAIN,
                        "the device is not known before the first peer is "
                        "live: wait for it");
    struct sw_xfer_transfer *t = calloc(1, sizeof(*t));
    if (!t)
        return xfe_fail(error, SW_XFER_NO_MEMORY, "out of memory");
    t->peer = peer;
    t->local = local;
    t->remote = remote;
    t->task = (struct xfc_task){.op = op, .state = SW_XFER_PREPARED, .has_sums = has_sums};
    if (local)
        status = make_plan(t, error);
    if (status) {
        free(t);
        return status;
    }
    if (local) {
        t->task.plan = &t->plan;
        local->uses++;
        remote->uses++;
    }
    peer->uses++;
    list_append(&peer->agent->transfers, &t->node);
    *out = t;
    return SW_XFER_OK;
}

enum sw_xfer_status sw_xfer_prepare(struct sw_xfer_peer *peer, enum sw_xfer_op op,
                                    struct sw_xfer_blocks *local, struct sw_xfer_blocks *remote,
                                    struct sw_xfer_error *error, struct sw_xfer_transfer **transfer)
{
    return prepare_pair(peer, op, local, remote, false, error, transfer);
}

enum sw_xfer_status sw_xfer_prepare_summed(struct sw_xfer_peer *peer, enum sw_xfer_op op,
                                           struct sw_xfer_blocks *local,
                                           struct sw_xfer_blocks *remote,
                                           struct sw_xfer_error *error,
                                           struct sw_xfer_transfer **transfer)
{
    return prepare_pair(peer, op, local, remote, true, error, transfer);
}

static bool take_blocks(struct sw_xfer_transfer *t, const struct sw_xfer_post_options *options)
{
    if (!t->local)
        return options->notice && !options->count;
    return options->count ? plan_by_index(t, options) : plan_whole(t);
}

enum sw_xfer_status sw_xfer_post(struct sw_xfer_transfer *t,
                                 const struct sw_xfer_post_options *options)
{
    struct sw_xfer_peer *peer = t->peer;
    if (xfe_is_forked(peer->agent))
        return SW_XFER_FORKED;
    if (t->task.state == SW_XFER_POSTED)
        return SW_XFER_BUSY;
    if (peer->state == SW_XFER_GONE)
        return SW_XFER_PEER_GONE;
    if (options->notice_bytes > (options->notice ? SW_XFER_NOTICE_MAX : 0) ||
        (peer->notice_bytes_max && options->notice_bytes > peer->notice_bytes_max))
        return SW_XFER_INVALID;
    if (!take_blocks(t, options))
        return SW_XFER_INVALID;
    if (t->task.node.next) /* it ended, and nobody has asked for it */
        list_remove(&t->task.node);
    t->arg = options->arg;
    t->task.notice = options->notice ? XFC_NOTICE_WAITS : XFC_NO_NOTICE;
    t->notice_bytes = options->notice_bytes;
    if (options->notice_bytes)
        memcpy(t->notice, options->notice, options->notice_bytes);
    t->task.deadline_ns = options->deadline_ns ? options->deadline_ns : SW_XFER_NEVER;
    xfc_flow_post(&peer->flow, &t->task, mover_now_ns());
    if (peer->state == SW_XFER_LIVE)
        xfe_peer_push(peer);
    return SW_XFER_OK;
}

void sw_xfer_cancel(struct sw_xfer_transfer *t)
{
    if (!xfe_is_forked(t->peer->agent))
        xfc_flow_cancel(&t->peer->flow, &t->task, mover_now_ns());
}

enum sw_xfer_state sw_xfer_state_of(const struct sw_xfer_transfer *t)
{
    return t->task.state;
}

void sw_xfer_info_of(const struct sw_xfer_transfer *t, struct sw_xfer_info *info)
{
    *info = (struct sw_xfer_info){
        .state = t->task.state,
        .status = t->task.status,
        .is_drained = t->task.state >= SW_XFER_DONE && !t->task.loose,
        .blocks = t->plan.blocks,
        .blocks_done = xfc_plan_blocks_done(&t->plan),
        .bytes = t->plan.bytes,
        .bytes_done = t->task.bytes_done,
        .requests = t->plan.requests_count,
        .posted_ns = t->task.posted_ns,
        .ended_ns = t->task.ended_ns,
        .arg = t->arg,
    };
}

enum sw_xfer_block_state sw_xfer_block_of(const struct sw_xfer_transfer *t, uint32_t index)
{
    return xfc_plan_block(&t->plan, index);
}

uint32_t sw_xfer_ended(struct sw_xfer_agent *agent, struct sw_xfer_transfer **transfers,
                       uint32_t transfers_max)
{
    uint32_t count = 0;
    struct list_node *node;
    while (count < transfers_max && (node = list_first(&agent->ended))) {
        list_remove(node);
        transfers[count++] = LIST_MEMBER(node, struct sw_xfer_transfer, task.node);
    }
    return count;
}

static bool uses_memory(const struct sw_xfer_transfer *t, const struct sw_xfer_memory *memory)
{
    for (uint32_t i = 0; t->local && i < t->local->parts; i++)
        if (t->local->memories[i] == memory)
            return true;
    return false;
}

bool xfe_transfers_let_go(struct sw_xfer_agent *agent, const struct sw_xfer_memory *memory)
{
    for (struct list_node *at = list_first(&agent->transfers); at;
         at = list_after(&agent->transfers, at)) {
        const struct sw_xfer_transfer *t = LIST_MEMBER(at, struct sw_xfer_transfer, node);
        if (t->task.state == SW_XFER_POSTED && uses_memory(t, memory))
            return false;
    }
    return true;
}

void xfe_transfer_free(struct sw_xfer_transfer *t)
{
    if (t->task.node.next)
        list_remove(&t->task.node);
    list_remove(&t->node);
    if (t->local) {
        t->local->uses--;
        t->remote->uses--;
        xfc_plan_free(&t->plan);
    }
    t->peer->uses--;
    free(t);
}

void sw_xfer_release(struct sw_xfer_transfer *t)
{
    sw_xfer_cancel(t);
    while (t->task.state == SW_XFER_POSTED && !xfe_is_forked(t->peer->agent))
        sw_xfer_wait(t, SW_XFER_NEVER); /* ended by the drain's bound */
    xfe_transfer_free(t);
}
