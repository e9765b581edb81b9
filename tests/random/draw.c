/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "draw_impl.h"

#define SHORTEST_MTU 256u /* bytes of a packet's payload */

void draw_open(struct draw *draw, uint64_t seed, struct model *model, const uint8_t *pattern)
{
    draw->random.state = seed;
    draw->model = model;
    model_clear(model, pattern);
    draw->patient = percent(draw, 2);
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++)
            model->conns[conn].ends[side].proc = (int)below(draw, PROCS);
    for (int proc = 0; proc < PROCS; proc++)
        for (int ud = 0; ud < UDS; ud++)
            model->uds[proc][ud].proc = proc;
}

/* --- pieces of memory --- */

bool draw_piece(struct draw *draw, int proc, uint32_t lane, uint32_t from, uint32_t len, int need,
                bool wanted, bool tight, struct model_sge *sge)
{
    int first = (int)below(draw, MRS);
    for (int i = 0; i < MRS; i++) {
        int slot = (first + i) % MRS;
        const struct model_mr *mr = &draw->model->mrs[proc][slot];
        uint32_t start = lane + from, end = lane + LANE_BYTES, mr_end = mr->offset + mr->len_bytes;
        if (!mr->live || ((mr->access & need) == need) != wanted)
            continue;
        start = start > mr->offset ? start : mr->offset;
        end = end < mr_end ? end : mr_end;
        if (start + len > end)
            continue;
        uint32_t at = tight ? start : start + below(draw, end - start - len + 1);
        *sge = (struct model_sge){
            .mr = slot, .generation = mr->generation, .offset = at, .len_bytes = len};
        return true;
    }
    return false;
}

uint32_t draw_past_end(struct draw *draw, uint32_t end, uint32_t len, int need)
{
    return need == IBV_ACCESS_REMOTE_ATOMIC ? ((end - 8) & ~7u) + 8
                                            : end - len + 1 + below(draw, 16);
}

bool draw_spoil(struct draw *draw, int proc, uint32_t lane, int need, struct model_sge *sge)
{
    const struct model_mr *mr = &draw->model->mrs[proc][sge->mr];
    switch (below(draw, 4)) {
    case 0:
        sge->key = KEY_BAD;
        return true;
    case 1:
        sge->key = KEY_STALE;
        return true;
    case 2:
        sge->offset = draw_past_end(draw, mr->offset + mr->len_bytes, sge->len_bytes, need);
        return true;
    default:
        return need && draw_piece(draw, proc, lane, 0, sge->len_bytes, need, false, false, sge);
    }
}

/* --- receives --- */

static void draw_recv(struct draw *draw, struct model_end *end, uint32_t lane, uint64_t wr_base,
                      struct model_recv *recv)
{
    uint32_t slot = end->next_slot++ % RECV_SLOTS * SLOT_BYTES;
    uint32_t len = percent(draw, 12) ? below(draw, 256) : SLOT_BYTES;
    memset(recv, 0, sizeof(*recv));
    recv->wr_id = wr_base | RECV_BIT | end->next_wr++;
    int count = len < 2 ? 1 : 1 + (int)below(draw, end->sge_cap < 2 ? end->sge_cap : 2);
    for (int i = 0; i < count; i++) {
        uint32_t part = i + 1 < count ? 1 + below(draw, len - 1) : len;
        struct model_sge *sge = &recv->sges[i];
        if (!draw_piece(draw, end->proc, lane, slot, part, IBV_ACCESS_LOCAL_WRITE, true, true,
                        sge) ||
            sge->offset != lane + slot)
            break; /* a shorter one, then */
        recv->sge_count++;
        slot += part;
        len -= part;
    }
    if (recv->sge_count == 1 && recv->sges[0].len_bytes == SLOT_BYTES && percent(draw, 5)) {
        struct model_sge bad = recv->sges[0];
        if (draw_spoil(draw, end->proc, lane, IBV_ACCESS_LOCAL_WRITE, &bad))
            recv->sges[0] = bad;
    }
}

void draw_recv_list(struct draw *draw, struct model_end *end, uint32_t lane, uint64_t wr_base,
                    struct draw_recvs *list)
{
    if (!end->exists || end->uses_srq || percent(draw, 20))
        return;
    int count = 1 + (int)below(draw, LIST_MAX);
    while (list->count < count && !list->rc &&
           (end->recv_count < (int)RECV_SLOTS || (uint32_t)end->recv_count == end->recv_cap)) {
        struct model_recv *recv = &list->recvs[list->count++];
        draw_recv(draw, end, lane, wr_base, recv);
        list->rc = model_receive(end, recv);
        if (list->rc)
            end->next_slot--; /* two receives must not share one */
    }
}

static void draw_srq(struct draw *draw, int proc, int srq, uint32_t *posts)
{
    uint32_t *count = &draw->model->srq_count[proc][srq];
    *posts = below(draw, RECV_SLOTS - *count + 1);
    *count += *posts;
}

/* --- requests --- */

uint32_t draw_len(struct draw *draw)
{
    uint32_t dice = below(draw, 100);
    return dice < 8    ? 0
           : dice < 50 ? 1 + below(draw, 64)
           : dice < 75 ? 65 + below(draw, 240)
           : dice < 94 ? 300 + below(draw, SLOT_BYTES - 300 + 1)
                       : SLOT_BYTES + below(draw, 4000);
}

bool draw_elements(struct draw *draw, const struct model_end *from, uint32_t lane, uint32_t *used,
                   int need, uint32_t len, struct model_op *op)
{
    uint32_t most = SGES < from->sge_cap ? SGES : from->sge_cap;
    int count = len == 0 ? 0 : len < SGES ? 1 : 1 + (int)below(draw, most);
    for (int i = 0; i < count; i++) {
        uint32_t left = (uint32_t)(count - i - 1);
        uint32_t part = left ? 1 + below(draw, len - left) : len;
        struct model_sge *sge = &op->sges[op->sge_count];
        if (!draw_piece(draw, from->proc, lane, *used, part, need, true, true, sge))
            return false;
        *used = sge->offset + part - lane;
        op->sge_count++;
        len -= part;
    }
    return true;
}

static bool draw_local(struct draw *draw, struct lanes *lanes, struct model_op *op, uint32_t len)
{
    bool into = model_need(op->opcode) & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    return draw_elements(draw, lanes->from, lanes->local, &lanes->local_used,
                         into ? IBV_ACCESS_LOCAL_WRITE : 0, len, op);
}

/* Ordering: a WRITE, SEND or atomic may overtake a READ or atomic before it unless it is fenced
 * (10.8.3.3); a READ may not overtake a WRITE. */
static void keep_order(struct lanes *lanes, struct model_op *op)
{
    uint32_t from = op->remote.offset, to = from + model_op_len(op);
    if (lanes->read_to > from && lanes->read_from < to)
        op->flags |= IBV_SEND_FENCE;
    if (op->flags & IBV_SEND_FENCE)
        lanes->read_from = lanes->read_to = 0;
    if (model_need(op->opcode) & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)) {
        bool none = lanes->read_to == 0;
        lanes->read_from = none || from < lanes->read_from ? from : lanes->read_from;
        lanes->read_to = none || to > lanes->read_to ? to : lanes->read_to;
    }
}

static bool draw_remote(struct draw *draw, struct lanes *lanes, struct model_op *op, uint32_t len)
{
    int need = model_need(op->opcode);
    bool atomic = need == IBV_ACCESS_REMOTE_ATOMIC;
    if (!lanes->faulty && (lanes->to->access & need) != need)
        return false;
    uint32_t room = atomic ? 16 : len;
    if (!(percent(draw, 60) && draw_window_piece(draw, lanes, room, need, true, &op->remote)) &&
        !draw_piece(draw, lanes->to->proc, lanes->remote, 0, room, need, true, false, &op->remote))
        return len == 0;
    op->remote.len_bytes = len;
    if (atomic)
        op->remote.offset = (op->remote.offset + 7) & ~7u;
    return true;
}

/* What a message that takes a receive meets. Two faults at once are no test: either may be found
 * first. */
enum welcome { WELCOME, NO_RECEIVE, BAD_RECEIVE, TOO_LONG, TWO_FAULTS };

static enum welcome find_welcome(const struct draw *draw, const struct lanes *lanes,
                                 const struct model_op *op)
{
    const struct model_end *to = lanes->to;
    uint32_t len = op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? 0 : model_op_len(op), room = 0;
    uint32_t srq_count =
        op->srq == SRQ_NONE
            ? 1
            : draw->model->srq_count[to->proc][model_srq_of(draw->model, lanes->conn, op)];
    if (to->uses_srq)
        return srq_count == 0 ? NO_RECEIVE : len <= SLOT_BYTES ? WELCOME : TOO_LONG;
    if (to->recv_count == 0)
        return NO_RECEIVE;
    const struct model_recv *recv = &to->recvs[0];
    bool good = true;
    for (int i = 0; i < recv->sge_count; i++) {
        room += recv->sges[i].len_bytes;
        good &= model_reaches(draw->model, to->proc, &recv->sges[i], IBV_ACCESS_LOCAL_WRITE);
    }
    if (len <= room)
        return good || len == 0 ? WELCOME : BAD_RECEIVE;
    return good ? TOO_LONG : TWO_FAULTS;
}

/* Over packets a message of UC is complete before it arrives, and if that is lost, nobody knows
 * when: it may meet the receives of the next round. */
static bool is_lost_some_time(const struct draw *draw, const struct lanes *lanes,
                              enum welcome welcome)
{
    return draw->model->link == LINK_PACKETS &&
           draw->model->conns[lanes->conn].type == IBV_QPT_UC &&
           (welcome == NO_RECEIVE || welcome == TOO_LONG);
}

/* Whether what a request takes at the target leaves one outcome only. */
static bool is_clear(const struct draw *draw, const struct lanes *lanes, const struct model_op *op)
{
    int need = model_need(op->opcode);
    enum welcome welcome = find_welcome(draw, lanes, op);
    bool admitted = (lanes->to->access & need) == need;
    if (!lanes->faulty)
        return welcome == WELCOME;
    if (welcome == TWO_FAULTS || is_lost_some_time(draw, lanes, welcome))
        return false;
    /* It is not said who of several is the one to find an SRQ empty, nor whether what is refused
     * has taken of it. */
    if (lanes->to->uses_srq && (welcome == NO_RECEIVE || !admitted))
        return false;
    /* Data of a WRITE whose immediate finds no receive may be there or not. */
    if (need && welcome != WELCOME)
        return admitted && model_op_len(op) == 0;
    return true;
}

static void draw_local_fault(struct draw *draw, struct lanes *lanes, struct model_op *op)
{
    bool into = model_need(op->opcode) & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    struct model_sge bad = op->sges[0];
    if (draw_spoil(draw, lanes->from->proc, lanes->local, into ? IBV_ACCESS_LOCAL_WRITE : 0, &bad))
        op->sges[0] = bad;
    op->compare_add = op->swap = 0; /* an atomic may have been done before it is found */
}

/* A long WRITE goes to a Sidewire peer in packets that are admitted one by one (docs/transport.md):
 * what lies within its region may have been written before it is refused. */
static bool is_done_in_part(const struct draw *draw, const struct lanes *lanes,
                            const struct model_op *op, const struct model_sge *bad)
{
    int proc = lanes->to->proc;
    const struct model_mr *mr = &draw->model->mrs[proc][bad->mr];
    const struct model_mw *mw = &draw->model->mws[proc][bad->mr];
    uint32_t start = bad->window ? mw->offset : mr->offset;
    uint32_t end = start + (bad->window ? mw->len_bytes : mr->len_bytes);
    return draw->model->link != LINK_HOST && op->opcode == IBV_WR_RDMA_WRITE &&
           bad->key == KEY_GOOD && bad->len_bytes > SHORTEST_MTU && bad->offset >= start &&
           bad->offset < end && bad->offset + bad->len_bytes > end;
}

static void draw_remote_fault(struct draw *draw, struct lanes *lanes, struct model_op *op)
{
    int need = model_need(op->opcode);
    bool atomic = need == IBV_ACCESS_REMOTE_ATOMIC;
    struct model_sge bad = op->remote;
    if (draw->model->conns[lanes->conn].type == IBV_QPT_XRC_SEND && percent(draw, 50)) {
        op->srq = percent(draw, 50) ? SRQ_NONE : SRQ_XRC_FOREIGN;
        return;
    }
    if (atomic && percent(draw, 25))
        bad.offset += 1 + below(draw, 7);
    else if (bad.window ? !draw_spoil_window(draw, lanes, need, &bad)
                        : !draw_spoil(draw, lanes->to->proc, lanes->remote, need, &bad))
        return;
    if (atomic && bad.offset % 8 && bad.key != KEY_GOOD)
        return;
    if (atomic && (bad.mr != op->remote.mr || bad.window != op->remote.window))
        bad.offset &= ~7u;
    if (!is_done_in_part(draw, lanes, op, &bad))
        op->remote = bad;
}

static void draw_fault(struct draw *draw, struct lanes *lanes, struct model_op *op)
{
    int need = model_need(op->opcode);
    bool xrc = draw->model->conns[lanes->conn].type == IBV_QPT_XRC_SEND;
    bool invalidates = op->opcode == IBV_WR_SEND_WITH_INV;
    /* Nothing to be wrong, or something wrong already. */
    if (xrc && !need && percent(draw, 50))
        op->srq = SRQ_NONE;
    else if (invalidates && !lanes->to->uses_srq && percent(draw, 50))
        draw_invalidated(draw, lanes, false, &op->remote);
    else if (model_op_len(op) == 0 || (lanes->to->access & need) != need)
        return;
    else if (op->sge_count == 1 && !(op->flags & IBV_SEND_INLINE) && percent(draw, need ? 40 : 100))
        draw_local_fault(draw, lanes, op);
    else if (need && !(op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && lanes->to->uses_srq))
        draw_remote_fault(draw, lanes, op);
}

/* The same at home, which comes first for all that is sent from there. */
static void draw_second_fault(struct draw *draw, struct lanes *lanes, struct model_op *op)
{
    bool into = model_need(op->opcode) & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    if (!into && op->sge_count == 1 && !(op->flags & IBV_SEND_INLINE) && percent(draw, 25))
        draw_local_fault(draw, lanes, op);
}

static const enum ibv_wr_opcode opcodes[] = {
    IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM,      IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD,
};

static void draw_opcode(struct draw *draw, const struct lanes *lanes, bool fault,
                        struct model_op *op)
{
    enum ibv_qp_type type = draw->model->conns[lanes->conn].type;
    op->opcode =
        opcodes[below(draw, type == IBV_QPT_UC ? 4 : sizeof(opcodes) / sizeof(opcodes[0]))];
    if (type != IBV_QPT_XRC_SEND && percent(draw, 15) &&
        draw_invalidated(draw, lanes, true, &op->remote))
        op->opcode = IBV_WR_SEND_WITH_INV;
    if (!fault && model_has_no_packet(draw->model, lanes->conn, op->opcode))
        op->opcode = IBV_WR_SEND;
    if (draw_is_stream(draw))
        draw_stream_op(op);
    if (type == IBV_QPT_XRC_SEND)
        op->srq = !model_need(op->opcode) && percent(draw, 50) ? SRQ_XRC_FOREIGN : SRQ_XRC;
}

static bool draw_op(struct draw *draw, struct lanes *lanes, bool fault, struct model_op *op)
{
    memset(op, 0, sizeof(*op));
    op->to_conn = -1;
    op->wr_id = (uint64_t)(lanes->conn * 2 + lanes->dir) << 32 | lanes->from->next_wr++;
    if (draw->model->conns[lanes->conn].type != IBV_QPT_XRC_SEND && !lanes->is_cut &&
        percent(draw, 25) && draw_local_op(draw, lanes, fault, op))
        return true;
    draw_opcode(draw, lanes, fault, op);
    op->flags = (percent(draw, 50) ? IBV_SEND_SIGNALED : 0) |
                (percent(draw, 20) ? IBV_SEND_SOLICITED : 0) |
                (percent(draw, 10) ? IBV_SEND_FENCE : 0);
    if (draw_is_stream(draw) && op->opcode == IBV_WR_SEND_WITH_INV)
        op->flags |= IBV_SEND_FENCE; /* a READ before it may be answered later than it is taken */
    op->imm = (uint32_t)vu_random(&draw->random);
    op->compare_add = below(draw, 3);
    op->swap = below(draw, 3);
    int need = model_need(op->opcode);
    bool atomic = need == IBV_ACCESS_REMOTE_ATOMIC, read = op->opcode == IBV_WR_RDMA_READ;
    bool takes_receive = !need || op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    uint32_t len = atomic ? 8 : draw_len(draw);
    if (!need && len > SLOT_BYTES && !lanes->faulty)
        len = SLOT_BYTES;
    if (!draw_local(draw, lanes, op, len) || (need && !draw_remote(draw, lanes, op, len)))
        return false;
    if (!atomic && !read && percent(draw, 30) &&
        (len <= lanes->from->inline_cap || percent(draw, lanes->faulty ? 10 : 0)))
        op->flags |= IBV_SEND_INLINE;
    if (takes_receive && !is_clear(draw, lanes, op))
        return false;
    if (model_has_no_packet(draw->model, lanes->conn, op->opcode))
        return true; /* that is its fault */
    if (fault && (!takes_receive || find_welcome(draw, lanes, op) == WELCOME))
        draw_fault(draw, lanes, op);
    if (fault)
        draw_second_fault(draw, lanes, op);
    if (need)
        keep_order(lanes, op);
    return true;
}

static void draw_send_list(struct draw *draw, int conn, int dir, bool faulty,
                           struct draw_sends *list)
{
    struct model_conn *pair = &draw->model->conns[conn];
    struct lanes lanes = {.conn = conn,
                          .dir = dir,
                          .from = &pair->ends[dir],
                          .to = &pair->ends[!dir],
                          .local = model_lane(conn, dir, LANE_LOCAL),
                          .remote = model_lane(conn, dir, LANE_REMOTE),
                          .faulty = faulty};
    bool can_send = lanes.from->state == IBV_QPS_RTS, heard = lanes.to->state == IBV_QPS_RTS;
    bool waits = pair->type != IBV_QPT_UC && can_send && !heard;
    bool strays = pair->type == IBV_QPT_UC && draw->model->link == LINK_PACKETS && !heard;
    if (!lanes.from->exists || (waits && !draw->patient) || strays)
        return; /* what strays may come in the peer's next life */
    if (pair->type == IBV_QPT_XRC_SEND && dir == 1)
        return; /* a target only listens */
    int count = 1 + (int)below(draw, LIST_MAX),
        at = faulty ? (int)below(draw, (uint32_t)count) : -1;
    list->chain = percent(draw, 70);
    for (int i = 0; i < count && !list->rc; i++) {
        /* A sender of UC is not told that the receiver has failed, and may be faster than that. */
        if (pair->type == IBV_QPT_UC && heard && lanes.to->state == IBV_QPS_ERR)
            break;
        struct model_op *op = &list->ops[list->count];
        bool drawn = false;
        lanes.is_cut = draw_is_stream(draw) && lanes.from->cut != CUT_NOT;
        for (int tries = 0; tries < 4 && !drawn; tries++)
            drawn = draw_op(draw, &lanes, i == at && !lanes.is_cut, op);
        if (!drawn)
            continue;
        /* Requests behind a READ or atomic may be out before the fault is found. */
        if (at >= 0 && i > at)
            op->flags |= IBV_SEND_FENCE;
        if (faulty)
            draw_stream_fault(draw, op);
        list->rc = model_send(draw->model, conn, dir, op);
        list->count++;
        /* A type 1 window is bound by a verb of its own, and what a key is is known after it. */
        if (model_is_local(op->opcode))
            list->chain = false;
    }
    if (draw_is_stream(draw))
        draw_stream_last(lanes.from, list);
}

void draw_work(struct draw *draw, struct draw_round *round)
{
    for (int proc = 0; proc < PROCS; proc++)
        for (int srq = 0; srq < (draw_is_stream(draw) ? 1 : SRQS); srq++)
            draw_srq(draw, proc, srq, &round->srq_posts[proc][srq]);
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++)
            draw_recv_list(draw, &draw->model->conns[conn].ends[side],
                           model_lane(conn, side, LANE_RECV), (uint64_t)(conn * 2 + side) << 32,
                           &round->recvs[conn][side]);
    for (int proc = 0; proc < PROCS; proc++)
        for (int slot = 0; slot < MWS; slot++)
            draw_mw_holder(draw, proc, slot);
    for (int conn = 0; conn < CONNS; conn++) {
        /* With a fault on its way, only one side sends: what it does to the other's requests is a
         * matter of time. */
        const struct model_conn *pair = &draw->model->conns[conn];
        bool well = pair->ends[0].state == pair->ends[1].state;
        bool faulty = well && percent(draw, 35);
        int only = faulty || !well ? (int)below(draw, 2) : -1;
        for (int dir = 0; dir < 2; dir++)
            if (only != !dir && percent(draw, 80))
                draw_send_list(draw, conn, dir, faulty, &round->sends[conn][dir]);
    }
    draw_ud_work(draw, round);
}
