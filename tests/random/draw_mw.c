/* SPDX-License-Identifier: BSD-2-Clause */
/* Windows in the programs of the random test. In each round a window belongs to one connection:
 * either its owner's end binds and invalidates it, or the other end uses it. */
#include "draw_impl.h"

void draw_mw(struct draw *draw, int proc, int slot, enum mw_act *act)
{
    struct model_mw *mw = &draw->model->mws[proc][slot];
    *act = MW_KEEP;
    if (mw->live && (mw->doubtful || percent(draw, 5))) {
        *act = MW_DEALLOC;
        mw->live = mw->bound = false;
    } else if (!mw->live && percent(draw, 70)) {
        *act = MW_ALLOC;
        mw->live = true;
        mw->bound = mw->doubtful = false;
        mw->type = percent(draw, 50) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
    }
}

void draw_mw_holder(struct draw *draw, int proc, int slot)
{
    struct model_mw *mw = &draw->model->mws[proc][slot];
    int ends[CONNS * 2], count = 0;
    for (int i = 0; i < CONNS * 2; i++) {
        const struct model_conn *conn = &draw->model->conns[i / 2];
        bool may_bind = conn->type != IBV_QPT_XRC_SEND && conn->ends[i % 2].state == IBV_QPS_RTS;
        if (conn->ends[i % 2].proc == proc && (mw->bound || may_bind))
            ends[count++] = i;
    }
    mw->holder = -1;
    if (!mw->live || mw->doubtful || !count)
        return;
    bool returns = mw->bound && percent(draw, 75); /* most often to who may use it */
    int end = returns ? mw->conn * 2 + mw->side : ends[below(draw, (uint32_t)count)];
    mw->holder = end / 2;
    mw->holder_side = end % 2;
    mw->owners_turn = percent(draw, mw->bound ? 20 : 90);
}

static bool is_held(const struct model_mw *mw, const struct lanes *lanes, bool by_owner)
{
    return mw->live && !mw->doubtful && mw->holder == lanes->conn &&
           mw->holder_side == (by_owner ? lanes->dir : !lanes->dir) && mw->owners_turn == by_owner;
}

/* One of the windows that the list may bind and invalidate, or (by the peer) use; or negative. */
static int find_held(struct draw *draw, const struct lanes *lanes, bool by_owner)
{
    int proc = by_owner ? lanes->from->proc : lanes->to->proc, first = (int)below(draw, MWS);
    for (int i = 0; i < MWS; i++)
        if (is_held(&draw->model->mws[proc][(first + i) % MWS], lanes, by_owner))
            return (first + i) % MWS;
    return -1;
}

static struct model_sge key_of(const struct model_mw *mw, int slot, uint32_t at, uint32_t len)
{
    return (struct model_sge){
        .mr = slot, .window = true, .generation = mw->generation, .offset = at, .len_bytes = len};
}

bool draw_window_piece(struct draw *draw, const struct lanes *lanes, uint32_t len, int need,
                       bool wanted, struct model_sge *sge)
{
    int first = (int)below(draw, MWS);
    for (int i = 0; i < MWS; i++) {
        int slot = (first + i) % MWS;
        const struct model_mw *mw = &draw->model->mws[lanes->to->proc][slot];
        uint32_t start = lanes->remote, end = start + LANE_BYTES, mw_end;
        if (!is_held(mw, lanes, false))
            continue;
        mw_end = mw->offset + mw->len_bytes;
        start = start > mw->offset ? start : mw->offset;
        end = end < mw_end ? end : mw_end;
        if (!mw->generation || start + len > end)
            continue;
        struct model_sge piece = key_of(mw, slot, start + below(draw, end - start - len + 1), len);
        if (model_remote_reaches(draw->model, lanes->conn, !lanes->dir, &piece, need) != wanted)
            continue;
        *sge = piece;
        return true;
    }
    return false;
}

bool draw_spoil_window(struct draw *draw, const struct lanes *lanes, int need,
                       struct model_sge *sge)
{
    const struct model_mw *mw = &draw->model->mws[lanes->to->proc][sge->mr];
    switch (below(draw, 4)) {
    case 0:
        sge->key = KEY_BAD;
        return true;
    case 1:
        sge->key = KEY_STALE;
        return true;
    case 2:
        sge->offset = draw_past_end(draw, mw->offset + mw->len_bytes, sge->len_bytes, need);
        return true;
    default: /* no right, not bound any more, or bound through another QP */
        return draw_window_piece(draw, lanes, sge->len_bytes, need, false, sge);
    }
}

/* A range of a region, aligned so that atomics through it are, about where the peer works. */
static bool draw_range(struct draw *draw, const struct lanes *lanes, struct model_op *op)
{
    int slot = percent(draw, 50) ? 0 : (int)below(draw, MRS);
    const struct model_mr *mr = &draw->model->mrs[lanes->from->proc][slot];
    uint32_t start = model_lane(lanes->conn, !lanes->dir, LANE_REMOTE) + below(draw, 2048);
    uint32_t end = start + LANE_BYTES / 2 + below(draw, LANE_BYTES);
    uint32_t mr_end = mr->offset + mr->len_bytes;
    start = ((start > mr->offset ? start : mr->offset) + 7) & ~7u;
    end = end < mr_end ? end : mr_end;
    if (!mr->live || end < start + 64)
        return false;
    op->remote = (struct model_sge){
        .mr = slot, .generation = mr->generation, .offset = start, .len_bytes = end - start};
    return true;
}

static bool draw_bind(struct draw *draw, const struct lanes *lanes, bool fault, int slot,
                      struct model_op *op)
{
    static const int rights[] = {IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
                                 IBV_ACCESS_REMOTE_ATOMIC};
    op->opcode = IBV_WR_BIND_MW;
    op->mw = slot;
    for (int i = 0; i < 3; i++)
        op->access |= percent(draw, 75) ? rights[i] : 0;
    op->access |= percent(draw, 30) ? IBV_ACCESS_ZERO_BASED : 0;
    if (!draw_range(draw, lanes, op))
        return false;
    if (fault && percent(draw, 30))
        op->remote.len_bytes += LANE_BYTES + ARENA_BYTES;
    return model_may_bind(draw->model, lanes->conn, lanes->dir, op) != fault;
}

bool draw_local_op(struct draw *draw, const struct lanes *lanes, bool fault, struct model_op *op)
{
    int slot = find_held(draw, lanes, true);
    struct model_op drawn = *op;
    if (slot < 0)
        return false;
    const struct model_mw *mw = &draw->model->mws[lanes->from->proc][slot];
    drawn.flags = IBV_SEND_SIGNALED | (percent(draw, 10) ? IBV_SEND_FENCE : 0);
    bool invalidate = mw->type == IBV_MW_TYPE_2 && mw->bound != (fault && percent(draw, 70));
    if (invalidate) {
        drawn.opcode = IBV_WR_LOCAL_INV;
        drawn.remote = key_of(mw, slot, 0, 0);
        if (fault)
            drawn.remote.key = percent(draw, 50) ? KEY_BAD : KEY_STALE;
        if (model_may_invalidate(draw->model, lanes->conn, lanes->dir, &drawn) == fault)
            return false;
    } else if (!draw_bind(draw, lanes, fault, slot, &drawn)) {
        return false;
    }
    *op = drawn;
    return true;
}

bool draw_invalidated(struct draw *draw, const struct lanes *lanes, bool good,
                      struct model_sge *sge)
{
    int slot = find_held(draw, lanes, false);
    if (slot < 0)
        return false;
    const struct model_mw *mw = &draw->model->mws[lanes->to->proc][slot];
    struct model_op op = {.remote = key_of(mw, slot, 0, 0)};
    if (!good && percent(draw, 50))
        op.remote.key = percent(draw, 50) ? KEY_BAD : KEY_STALE;
    if (model_may_invalidate(draw->model, lanes->conn, !lanes->dir, &op) != good)
        return false;
    *sge = op.remote;
    return true;
}
