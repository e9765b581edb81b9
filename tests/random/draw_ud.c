/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams in the programs of the random test. In each round a UD QP hears of one other only (or
 * of itself), so that what comes is in order, and a QP whose next receives may fail does not send.
 * A round sends far less than a ring holds.
 *
 * Over packets nobody knows when a datagram is dropped, so it is for a reason that lasts; and no
 * order is kept (9.8.3), so a QP hears of one datagram in a round.
 */
#include <string.h>

#include "draw_impl.h"

/* The last one is privileged: requests cannot name it, only ask for their own QP's. */
static const uint32_t qkeys[] = {0x11, 0x22, 0x80000033};
#define QKEYS (sizeof(qkeys) / sizeof(qkeys[0]))
#define NO_QKEY 0x44u /* nobody's */

static void draw_break(struct draw *draw, struct model_end *end, struct draw_ud_acts *acts)
{
    bool well = end->state == IBV_QPS_RTS;
    uint32_t dice = below(draw, 100);
    acts->destroy = dice < (well ? 5u : 20u);
    acts->error = !acts->destroy && dice < 10 && end->state != IBV_QPS_RESET;
    acts->reset = !acts->destroy && !acts->error && dice < (well ? 15u : 70u);
    acts->revive = dice > 70 && end->state == IBV_QPS_SQE;
    acts->rekey = dice > 80 && well;
    if (acts->error)
        model_error(end);
    if (acts->reset)
        model_reset(end);
    if (acts->revive)
        end->state = IBV_QPS_RTS;
    end->exists = !acts->destroy;
}

static void draw_admin_of(struct draw *draw, struct model_end *end, struct draw_ud_acts *acts)
{
    memset(acts, 0, sizeof(*acts));
    if (end->exists)
        draw_break(draw, end, acts);
    if (!end->exists && !draw_is_stream(draw) && percent(draw, 90)) {
        acts->create = true;
        draw_attr(draw, &acts->attr);
        draw_make_end(end, &acts->attr);
    }
    if (!end->exists)
        return;
    acts->init = end->state == IBV_QPS_RESET && percent(draw, 95);
    acts->ready = acts->init;
    acts->active = acts->ready ? percent(draw, 95) : end->state == IBV_QPS_RTR;
    if (acts->init || acts->rekey)
        end->qkey = acts->qkey = qkeys[below(draw, QKEYS)];
    if (acts->ready)
        end->state = IBV_QPS_RTR;
    if (acts->active)
        end->state = IBV_QPS_RTS;
}

void draw_ud_admin(struct draw *draw, struct draw_round *round)
{
    for (int proc = 0; proc < PROCS; proc++)
        for (int ud = 0; ud < UDS; ud++)
            draw_admin_of(draw, &draw->model->uds[proc][ud], &round->uds[proc][ud]);
}

/* Whether a receive that this datagram may meet has a bad key. */
static bool may_fail(const struct draw *draw, const struct model_end *to)
{
    bool good = true;
    for (int i = 0; i < to->recv_count; i++)
        for (int s = 0; s < to->recvs[i].sge_count; s++)
            good &=
                model_reaches(draw->model, to->proc, &to->recvs[i].sges[s], IBV_ACCESS_LOCAL_WRITE);
    return !good;
}

struct ud_list {
    int proc, ud;
    int targets[PROCS * UDS], target_count; /* that hear of this QP in this round */
    uint32_t lane, used;
    bool faulty;
    bool heard[PROCS * UDS]; /* who has been sent one */
};

/* Whether it can be sent over packets, too. */
static bool is_clear(const struct draw *draw, struct ud_list *list, const struct model_op *op)
{
    bool *heard = &list->heard[op->to_proc * UDS + op->to_ud];
    if (draw->model->link == LINK_HOST || op->to_conn >= 0 || op->qkey == NO_QKEY)
        return true;
    if (*heard || !model_datagram_fits(draw->model, list->proc, list->ud, op))
        return false;
    *heard = true;
    return true;
}

static uint32_t draw_ud_len(struct draw *draw)
{
    uint32_t most = SLOT_BYTES - GRH_BYTES, len = draw_len(draw);
    return len > most && percent(draw, 80) ? most : len;
}

static void draw_dest(struct draw *draw, const struct ud_list *list, struct model_op *op)
{
    int target = list->targets[below(draw, (uint32_t)list->target_count)];
    op->to_proc = target / UDS;
    op->to_ud = target % UDS;
    op->to_conn = -1;
    uint32_t theirs = draw->model->uds[op->to_proc][op->to_ud].qkey;
    op->qkey = percent(draw, 85) ? theirs : qkeys[below(draw, QKEYS)];
    if (draw->model->link == LINK_PACKETS && op->qkey != theirs)
        op->qkey = NO_QKEY; /* another's may be theirs when it comes */
    int conn = (int)below(draw, CONNS);
    const struct model_end *stranger = &draw->model->conns[conn].ends[0];
    if (stranger->exists && percent(draw, 4)) { /* a QP of another kind */
        op->to_proc = stranger->proc;
        op->to_conn = conn;
    }
}

static bool draw_datagram(struct draw *draw, struct ud_list *list, struct model_op *op)
{
    struct model_end *from = &draw->model->uds[list->proc][list->ud];
    memset(op, 0, sizeof(*op));
    op->wr_id = (uint64_t)(CONNS * 2 + list->proc * UDS + list->ud) << 32 | from->next_wr++;
    op->opcode = percent(draw, 50) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
    op->flags =
        (percent(draw, 60) ? IBV_SEND_SIGNALED : 0) | (percent(draw, 20) ? IBV_SEND_SOLICITED : 0);
    op->imm = (uint32_t)vu_random(&draw->random);
    draw_dest(draw, list, op);
    uint32_t len =
        list->faulty && percent(draw, 20) ? draw->model->mtu_bytes + 1 : draw_ud_len(draw);
    if (len > LANE_BYTES || !draw_elements(draw, from, list->lane, &list->used, 0, len, op))
        return false;
    if (len <= from->inline_cap && percent(draw, 30))
        op->flags |= IBV_SEND_INLINE;
    if (op->sge_count == 1 && !(op->flags & IBV_SEND_INLINE) && len <= draw->model->mtu_bytes &&
        list->faulty && percent(draw, 20))
        draw_spoil(draw, list->proc, list->lane, 0, &op->sges[0]);
    if (!is_clear(draw, list, op))
        return false;
    /* A shared queue that others draw from as well is never overdrawn. */
    const struct model_end *to = &draw->model->uds[op->to_proc][op->to_ud];
    return !to->uses_srq || draw->model->srq_count[op->to_proc][SRQ_PLAIN];
}

static void draw_datagrams(struct draw *draw, struct ud_list *from, struct draw_sends *list)
{
    struct model_end *end = &draw->model->uds[from->proc][from->ud];
    int count = 1 + (int)below(draw, LIST_MAX);
    list->chain = percent(draw, 70);
    from->faulty = percent(draw, 15);
    struct model_op *last = NULL; /* that went out */
    for (int i = 0; i < count && !list->rc; i++) {
        struct model_op *op = &list->ops[list->count];
        if (!draw_datagram(draw, from, op))
            continue;
        list->rc = model_datagram(draw->model, from->proc, from->ud, op);
        list->count++;
        if (!list->rc)
            last = op;
    }
    /* With the last completion all are in the rings, and next round's changes come after them. */
    if (last && end->state == IBV_QPS_RTS && !end->sig_all && !(last->flags & IBV_SEND_SIGNALED)) {
        last->flags |= IBV_SEND_SIGNALED;
        model_signal(end, last);
    }
}

void draw_ud_work(struct draw *draw, struct draw_round *round)
{
    int source[PROCS * UDS];
    bool listens[PROCS * UDS];
    for (int i = 0; i < PROCS * UDS; i++) {
        struct model_end *end = &draw->model->uds[i / UDS][i % UDS];
        draw_recv_list(draw, end, model_ud_lane(i % UDS, true), (uint64_t)(CONNS * 2 + i) << 32,
                       &round->ud_recvs[i / UDS][i % UDS]);
        source[i] = (int)below(draw, PROCS * UDS);
        listens[i] = may_fail(draw, end) || percent(draw, 20);
    }
    for (int i = 0; i < PROCS * UDS; i++) {
        struct ud_list list = {
            .proc = i / UDS, .ud = i % UDS, .lane = model_ud_lane(i % UDS, false)};
        for (int to = 0; to < PROCS * UDS; to++)
            if (source[to] == i)
                list.targets[list.target_count++] = to;
        if (!listens[i] && list.target_count && draw->model->uds[i / UDS][i % UDS].exists)
            draw_datagrams(draw, &list, &round->ud_sends[i / UDS][i % UDS]);
    }
}
