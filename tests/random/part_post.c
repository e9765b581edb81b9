/* SPDX-License-Identifier: BSD-2-Clause */
/* The work of a process in a round: receives and requests as they were drawn. */
#include <endian.h>
#include <string.h>

#include "part.h"

static struct ibv_sge local_sge(const struct part *part, const struct model_sge *sge)
{
    uint32_t key = part->mrs[sge->mr] ? part->mrs[sge->mr]->lkey : BAD_KEY;
    if (sge->key == KEY_BAD)
        key ^= BAD_KEY;
    else if (sge->key == KEY_STALE)
        key = part->stale_lkey ? part->stale_lkey : BAD_KEY;
    return (struct ibv_sge){(uintptr_t)part->arena + sge->offset, sge->len_bytes, key};
}

static void trace_sges(const struct model_sge *sges, int count)
{
    for (int i = 0; i < count; i++)
        fprintf(stderr, " [mr %d key %d 0x%x+%u]", sges[i].mr, (int)sges[i].key, sges[i].offset,
                sges[i].len_bytes);
}

static void trace_op(const struct part *part, const struct model_op *op)
{
    fprintf(stderr, "p%d post %llx: opcode %d flags 0x%x", part->proc,
            (unsigned long long)op->wr_id, (int)op->opcode, op->flags);
    trace_sges(op->sges, op->sge_count);
    if (op->to_conn < 0 && op->qkey)
        fprintf(stderr, " -> p%d ud %d Q_Key 0x%x\n", op->to_proc, op->to_ud, op->qkey);
    else
        fprintf(stderr, " -> %s %d key %d 0x%x, mw %d srq %d\n", op->remote.window ? "mw" : "mr",
                op->remote.mr, (int)op->remote.key, op->remote.offset, op->mw, (int)op->srq);
}

static void post_recvs(struct part *part, struct ibv_qp *qp, const struct draw_recvs *list)
{
    for (int i = 0; i < list->count; i++) {
        const struct model_recv *recv = &list->recvs[i];
        struct ibv_sge sges[SGES];
        for (int s = 0; s < recv->sge_count; s++)
            sges[s] = local_sge(part, &recv->sges[s]);
        struct ibv_recv_wr wr = {.wr_id = recv->wr_id, .sg_list = sges, .num_sge = recv->sge_count},
                           *bad = NULL;
        int rc = ibv_post_recv(qp, &wr, &bad);
        if (part->run->trace) {
            fprintf(stderr, "p%d recv %llx:", part->proc, (unsigned long long)recv->wr_id);
            trace_sges(recv->sges, recv->sge_count);
            fprintf(stderr, ": rc %d\n", rc);
        }
        VU_EQ(rc, i + 1 < list->count ? 0 : list->rc);
        VU_TRUE(!rc || bad == &wr);
    }
}

static void post_srq(struct part *part, enum srq srq)
{
    uint32_t slot = 0;
    for (uint32_t left = part->round.srq_posts[part->proc][srq]; left; slot++) {
        VU_TRUE(slot < RECV_SLOTS);
        if (!part->srq_taken[srq][slot])
            continue;
        part->srq_taken[srq][slot] = false;
        left--;
        TRACE(part, "p%d srq %d slot %u\n", part->proc, (int)srq, slot);
        VU_EQ(vu_post_srq(part->srqs[srq], SRQ_BIT | RECV_BIT | (uint64_t)srq << 8 | slot,
                          part_srq_slot(part, srq, slot), SLOT_BYTES, part->srq_mrs[srq]->lkey),
              0);
    }
}

/* What a READ without a completion brought has been seen, but not in a way a sanitizer knows. */
__attribute__((no_sanitize("thread"))) static void
copy_out(uint8_t *to, const volatile uint8_t *from, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        to[i] = from[i];
}

static uint32_t remote_key(const struct part *part, int to, const struct model_sge *remote)
{
    __typeof__(&part->board->procs[0]) note = &part->board->procs[to];
    uint32_t key = remote->window ? note->mw_rkeys[remote->mr] : note->rkeys[remote->mr];
    uint32_t stale = remote->window ? note->mw_stale[remote->mr] : note->stale_rkey;
    return remote->key == KEY_BAD     ? key ^ BAD_KEY
           : remote->key == KEY_STALE ? (stale ? stale : BAD_KEY)
                                      : key;
}

static uint64_t remote_addr(const struct part *part, int to, const struct model_sge *remote)
{
    const struct model_mw *mw = &part->model.mws[to][remote->window ? remote->mr : 0];
    if (remote->window && mw->access & IBV_ACCESS_ZERO_BASED)
        return remote->offset - mw->offset;
    return part->board->procs[to].base + remote->offset;
}

static void fill_remote(const struct part *part, int to, const struct model_op *op,
                        struct ibv_send_wr *wr)
{
    uint64_t addr = remote_addr(part, to, &op->remote);
    uint32_t rkey = remote_key(part, to, &op->remote);
    if (op->opcode == IBV_WR_SEND_WITH_INV || op->opcode == IBV_WR_LOCAL_INV) {
        wr->invalidate_rkey = rkey;
    } else if (model_need(op->opcode) == IBV_ACCESS_REMOTE_ATOMIC) {
        wr->wr.atomic.remote_addr = addr;
        wr->wr.atomic.rkey = rkey;
        wr->wr.atomic.compare_add = op->compare_add;
        wr->wr.atomic.swap = op->swap;
    } else {
        wr->wr.rdma.remote_addr = addr;
        wr->wr.rdma.rkey = rkey;
    }
}

static void fill_wr(struct part *part, const struct model_op *op, struct ibv_send_wr *wr,
                    struct ibv_sge *sges, uint8_t *scratch)
{
    memset(wr, 0, sizeof(*wr));
    wr->wr_id = op->wr_id;
    wr->opcode = op->opcode;
    wr->send_flags = op->flags;
    wr->sg_list = sges;
    wr->num_sge = op->sge_count;
    wr->imm_data = htobe32(op->imm);
    for (int i = 0; i < op->sge_count; i++) {
        sges[i] = local_sge(part, &op->sges[i]);
        if (op->flags & IBV_SEND_INLINE) { /* from a copy that is spoilt when the post returns */
            copy_out(scratch, part->arena + op->sges[i].offset, sges[i].length);
            sges[i].addr = (uintptr_t)scratch;
            sges[i].lkey = 0;
            scratch += sges[i].length;
        }
    }
}

static struct ibv_mw_bind_info bind_info(const struct part *part, const struct model_op *op)
{
    return (struct ibv_mw_bind_info){.mr = part->mrs[op->remote.mr],
                                     .addr = (uintptr_t)part->arena + op->remote.offset,
                                     .length = op->remote.len_bytes,
                                     .mw_access_flags = (unsigned int)op->access};
}

/* A window's new key is told the others here: they use it in a later round. */
static int post_bind(struct part *part, struct ibv_qp *qp, const struct model_op *op,
                     struct ibv_send_wr *wr)
{
    struct ibv_mw *mw = part->mws[op->mw];
    __typeof__(&part->board->procs[0]) note = &part->board->procs[part->proc];
    struct ibv_send_wr *bad = NULL;
    int rc;
    if (mw->type == IBV_MW_TYPE_1) {
        struct ibv_mw_bind bind = {op->wr_id, op->flags, bind_info(part, op)};
        rc = ibv_bind_mw(qp, mw, &bind);
    } else {
        uint32_t rkey = ibv_inc_rkey(mw->rkey);
        wr->bind_mw.mw = mw;
        wr->bind_mw.rkey = rkey;
        wr->bind_mw.bind_info = bind_info(part, op);
        rc = ibv_post_send(qp, wr, &bad);
        mw->rkey = rc ? mw->rkey : rkey;
    }
    if (!rc) {
        note->mw_stale[op->mw] = note->mw_rkeys[op->mw];
        note->mw_rkeys[op->mw] = mw->rkey;
    }
    return rc;
}

static uint8_t scratch[LIST_MAX][LANE_BYTES];

static void post_list(struct part *part, struct ibv_qp *qp, const struct draw_sends *list,
                      struct ibv_send_wr *wrs)
{
    int step = list->chain ? list->count : 1;
    for (int i = 0; i + 1 < list->count && list->chain; i++)
        wrs[i].next = &wrs[i + 1];
    for (int first = 0; first < list->count; first += step) {
        struct ibv_send_wr *bad = &wrs[first];
        int last = first + step - 1, wanted = last + 1 < list->count ? 0 : list->rc;
        if (list->ops[first].opcode == IBV_WR_LOCAL_INV) /* of a key that may be fresh */
            fill_remote(part, part->proc, &list->ops[first], &wrs[first]);
        if (list->ops[first].opcode == IBV_WR_BIND_MW)
            VU_EQ(post_bind(part, qp, &list->ops[first], &wrs[first]), wanted);
        else
            VU_EQ(ibv_post_send(qp, &wrs[first], &bad), wanted);
        VU_TRUE(!wanted || bad == &wrs[last]);
    }
    memset(scratch, 0xdd, (size_t)list->count * LANE_BYTES);
}

static void post_sends(struct part *part, int conn, int dir)
{
    const struct draw_sends *list = &part->round.sends[conn][dir];
    struct ibv_send_wr wrs[LIST_MAX];
    struct ibv_sge sges[LIST_MAX][SGES];
    int to = part->model.conns[conn].ends[!dir].proc;
    for (int i = 0; i < list->count; i++) {
        const struct model_op *op = &list->ops[i];
        fill_wr(part, op, &wrs[i], sges[i], scratch[i]);
        fill_remote(part, to, op, &wrs[i]);
        if (part->model.conns[conn].type == IBV_QPT_XRC_SEND)
            wrs[i].qp_type.xrc.remote_srqn =
                op->srq == SRQ_NONE ? 0xffffff : part->board->procs[to].srq_nums[op->srq];
        if (part->run->trace)
            trace_op(part, op);
    }
    post_list(part, part->eps[conn][dir].qp, list, wrs);
}

static void post_datagrams(struct part *part, int ud)
{
    const struct draw_sends *list = &part->round.ud_sends[part->proc][ud];
    struct ibv_send_wr wrs[LIST_MAX];
    struct ibv_sge sges[LIST_MAX][SGES];
    for (int i = 0; i < list->count; i++) {
        const struct model_op *op = &list->ops[i];
        fill_wr(part, op, &wrs[i], sges[i], scratch[i]);
        wrs[i].wr.ud.ah = part->ahs[op->to_proc];
        wrs[i].wr.ud.remote_qpn = op->to_conn < 0 ? part->board->uds[op->to_proc][op->to_ud].qpn
                                                  : part->board->ends[op->to_conn][0].qpn;
        wrs[i].wr.ud.remote_qkey = op->qkey;
        if (part->run->trace)
            trace_op(part, op);
    }
    post_list(part, part->uds[ud].qp, list, wrs);
}

void part_post(struct part *part)
{
    draw_work(&part->draw, &part->round);
    for (int srq = 0; srq < SRQS; srq++)
        post_srq(part, (enum srq)srq);
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++)
            if (part_end(part, conn, side))
                post_recvs(part, part->eps[conn][side].qp, &part->round.recvs[conn][side]);
    for (int ud = 0; ud < UDS; ud++)
        post_recvs(part, part->uds[ud].qp, &part->round.ud_recvs[part->proc][ud]);
    part_meet(part);
    for (int conn = 0; conn < CONNS; conn++)
        for (int dir = 0; dir < 2; dir++)
            if (part_end(part, conn, dir))
                post_sends(part, conn, dir);
    for (int ud = 0; ud < UDS; ud++)
        post_datagrams(part, ud);
}
