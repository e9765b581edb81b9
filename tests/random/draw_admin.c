/* SPDX-License-Identifier: BSD-2-Clause */
/* What happens between two rounds: connections, regions and windows come and go. */
#include <string.h>

#include "draw_impl.h"

static void draw_mr(struct draw *draw, int proc, int slot, enum mr_act *act)
{
    struct model_mr *mr = &draw->model->mrs[proc][slot];
    *act = MR_KEEP;
    if (mr->live && percent(draw, slot ? 15 : 5)) {
        bool busy = model_has_windows(draw->model, proc, slot);
        *act = busy ? MR_BUSY : MR_DEREGISTER;
        mr->live = busy;
    } else if (!mr->live && percent(draw, slot ? 70 : 95)) {
        *act = MR_REGISTER;
        mr->live = true;
        mr->generation++;
        mr->offset = slot ? below(draw, ARENA_BYTES - 1) : 0;
        mr->len_bytes = slot ? 1 + below(draw, ARENA_BYTES - mr->offset) : ARENA_BYTES;
        mr->access = percent(draw, slot ? 85 : 100) ? IBV_ACCESS_LOCAL_WRITE : 0;
        if (percent(draw, slot ? 70 : 100))
            mr->access |= IBV_ACCESS_REMOTE_READ;
        if (mr->access & IBV_ACCESS_LOCAL_WRITE && percent(draw, slot ? 70 : 100))
            mr->access |= IBV_ACCESS_REMOTE_WRITE;
        if (mr->access & IBV_ACCESS_LOCAL_WRITE && percent(draw, slot ? 70 : 100))
            mr->access |= IBV_ACCESS_REMOTE_ATOMIC;
        if (percent(draw, slot ? 50 : 100))
            mr->access |= IBV_ACCESS_MW_BIND;
    }
}

void draw_attr(struct draw *draw, struct draw_end_attr *attr)
{
    static const int rights[] = {IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
                                 IBV_ACCESS_REMOTE_ATOMIC};
    attr->send_cq = (int)below(draw, CQS);
    attr->recv_cq = (int)below(draw, CQS);
    attr->sig_all = percent(draw, 25);
    attr->uses_srq = percent(draw, 25);
    attr->send_wr = 1 + below(draw, 24);
    attr->recv_wr = 1 + below(draw, 16);
    attr->sges = 1 + below(draw, SGES);
    attr->inline_bytes = percent(draw, 50) ? below(draw, 400) : 0;
    attr->conn = vu_conn_default;
    /* Over packets who gets no processor for a second is not dead yet. */
    attr->conn.timeout = draw->model->link == LINK_PACKETS ? 18 : 8;
    attr->conn.retry_cnt = 1;
    attr->conn.rnr_retry = (uint8_t)below(draw, 2);
    attr->conn.min_rnr_timer = 1;
    if (percent(draw, 12) && !draw_is_stream(draw))
        attr->conn.access &= ~rights[below(draw, 3)];
}

void draw_make_end(struct model_end *end, const struct draw_end_attr *attr)
{
    int proc = end->proc;
    memset(end, 0, sizeof(*end));
    end->proc = proc;
    end->exists = true;
    end->sig_all = attr->sig_all;
    end->uses_srq = attr->uses_srq;
}

/* Its type 2 windows go with a QP that is destroyed. It is not said what a reset does to them. */
static void lose_windows(struct draw *draw, int conn, int side, bool destroyed)
{
    int proc = draw->model->conns[conn].ends[side].proc;
    for (int i = 0; i < MWS; i++) {
        struct model_mw *mw = &draw->model->mws[proc][i];
        if (mw->type != IBV_MW_TYPE_2 || mw->conn != conn || mw->side != side)
            continue;
        mw->bound &= !destroyed;
        mw->doubtful |= !destroyed;
    }
}

static bool both_in(const struct model_conn *conn, enum ibv_qp_state state)
{
    return conn->ends[0].state == state && conn->ends[1].state == state;
}

static void draw_breaks(struct draw *draw, int index, struct draw_conn_acts *acts)
{
    struct model_conn *conn = &draw->model->conns[index];
    bool well = !both_in(conn, IBV_QPS_ERR) && conn->ends[0].state == conn->ends[1].state;
    uint32_t dice = below(draw, 100);
    for (int side = 0; side < 2; side++)
        acts->revive[side] = conn->ends[side].state == IBV_QPS_SQE && percent(draw, 40);
    if (acts->revive[0] || acts->revive[1])
        dice = 100;
    if (dice < (well ? 6u : 30u)) {
        uint32_t which = well ? 1 + below(draw, 3) : 3;
        for (int side = 0; side < 2; side++)
            acts->error[side] = which >> side & 1;
        draw_stream_breaks(draw, acts);
    } else if (dice < (well ? 12u : 80u)) {
        acts->reset[0] = acts->reset[1] = true;
    } else if (dice < (well ? 18u : 92u)) {
        acts->destroy[0] = acts->destroy[1] = true;
    }
    for (int side = 0; side < 2; side++) {
        struct model_end *end = &conn->ends[side];
        if (acts->error[side])
            model_error(end);
        if (acts->reset[side])
            model_reset(end);
        if (acts->destroy[side])
            end->exists = false;
        if (acts->reset[side] || acts->destroy[side])
            lose_windows(draw, index, side, acts->destroy[side]);
        if (acts->revive[side])
            end->state = IBV_QPS_RTS;
    }
}

static void draw_conn(struct draw *draw, int index, struct draw_conn_acts *acts)
{
    struct model_conn *conn = &draw->model->conns[index];
    memset(acts, 0, sizeof(*acts));
    if (conn->ends[0].exists && !both_in(conn, IBV_QPS_RESET))
        draw_breaks(draw, index, acts);
    if (!conn->ends[0].exists && percent(draw, 90)) {
        acts->create = true;
        uint32_t dice = below(draw, 100);
        conn->type = dice < 25 ? IBV_QPT_UC : dice < 45 ? IBV_QPT_XRC_SEND : IBV_QPT_RC;
        if (draw_is_stream(draw))
            conn->type = IBV_QPT_RC;
        for (int side = 0; side < 2; side++) {
            draw_attr(draw, &acts->attrs[side]);
            acts->attrs[side].uses_srq |= conn->type == IBV_QPT_XRC_SEND;
            draw_make_end(&conn->ends[side], &acts->attrs[side]);
        }
    }
    if (!conn->ends[0].exists)
        return;
    acts->init = both_in(conn, IBV_QPS_RESET) && percent(draw, 90);
    acts->connect = acts->init ? percent(draw, 90) : both_in(conn, IBV_QPS_INIT);
    for (int side = 0; side < 2; side++) {
        struct model_end *end = &conn->ends[side];
        if (acts->init) { /* another life may have other rights */
            struct draw_end_attr fresh;
            draw_attr(draw, &fresh);
            acts->attrs[side].conn = fresh.conn;
            end->access = fresh.conn.access;
            end->rnr_retry = fresh.conn.rnr_retry;
            end->state = IBV_QPS_INIT;
        }
        if (acts->connect) {
            if (!acts->init) {
                acts->attrs[side].conn = vu_conn_default;
                acts->attrs[side].conn.rnr_retry = end->rnr_retry;
                acts->attrs[side].conn.min_rnr_timer = 1;
            }
            end->state = IBV_QPS_RTS;
        }
    }
}

void draw_admin(struct draw *draw, struct draw_round *round)
{
    memset(round, 0, sizeof(*round));
    model_round(draw->model);
    for (int conn = 0; conn < CONNS; conn++)
        draw_conn(draw, conn, &round->conns[conn]);
    draw_ud_admin(draw, round);
    for (int proc = 0; proc < PROCS; proc++) {
        for (int slot = 0; slot < MWS; slot++)
            draw_mw(draw, proc, slot, &round->mw_acts[proc][slot]);
        for (int slot = 0; slot < MRS; slot++)
            draw_mr(draw, proc, slot, &round->mr_acts[proc][slot]);
    }
}
