/* SPDX-License-Identifier: BSD-2-Clause */
/* The objects of a process: what a program begins with, and what changes between its rounds. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "part.h"

void part_meet(struct part *part)
{
    int rc = pthread_barrier_wait(&part->board->barrier);
    VU_TRUE(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
}

struct model_end *part_end(struct part *part, int conn, int side)
{
    struct model_end *end = &part->model.conns[conn].ends[side];
    return end->proc == part->proc ? end : NULL;
}

static void act_mrs(struct part *part)
{
    for (int slot = 0; slot < MRS; slot++) {
        enum mr_act act = part->round.mr_acts[part->proc][slot];
        const struct model_mr *mr = &part->model.mrs[part->proc][slot];
        if (act == MR_DEREGISTER) {
            part->stale_lkey = part->mrs[slot]->lkey;
            part->board->procs[part->proc].stale_rkey = part->mrs[slot]->rkey;
            VU_EQ(ibv_dereg_mr(part->mrs[slot]), 0);
            part->mrs[slot] = NULL;
        } else if (act == MR_REGISTER) {
            TRACE(part, "p%d mr %d: 0x%x + 0x%x access 0x%x\n", part->proc, slot, mr->offset,
                  mr->len_bytes, mr->access);
            part->mrs[slot] =
                vu_reg(&part->dev, part->arena + mr->offset, mr->len_bytes, mr->access);
            part->board->procs[part->proc].rkeys[slot] = part->mrs[slot]->rkey;
        } else if (act == MR_BUSY) {
            VU_EQ(ibv_dereg_mr(part->mrs[slot]), EBUSY);
        }
    }
    /* A new region may have got the number of an old one. */
    for (int slot = 0; slot < MRS; slot++) {
        if (part->mrs[slot] && part->mrs[slot]->lkey == part->stale_lkey)
            part->stale_lkey = 0;
        if (part->mrs[slot] && part->mrs[slot]->rkey == part->board->procs[part->proc].stale_rkey)
            part->board->procs[part->proc].stale_rkey = 0;
    }
}

static void act_mws(struct part *part, enum mw_act act)
{
    __typeof__(&part->board->procs[0]) note = &part->board->procs[part->proc];
    for (int slot = 0; slot < MWS; slot++) {
        if (part->round.mw_acts[part->proc][slot] != act)
            continue;
        if (act == MW_DEALLOC) {
            VU_EQ(ibv_dealloc_mw(part->mws[slot]), 0);
            part->mws[slot] = NULL;
            continue;
        }
        part->mws[slot] = ibv_alloc_mw(part->dev.pd, part->model.mws[part->proc][slot].type);
        VU_TRUE(part->mws[slot]);
        note->mw_rkeys[slot] = part->mws[slot]->rkey;
        note->mw_stale[slot] = 0;
        if (note->stale_rkey >> 8 == note->mw_rkeys[slot] >> 8)
            note->stale_rkey = 0; /* it may come to life again */
        TRACE(part, "p%d mw %d: type %d\n", part->proc, slot, (int)part->mws[slot]->type);
    }
}

static void act_break(struct part *part, int conn, int side)
{
    const struct draw_conn_acts *acts = &part->round.conns[conn];
    if (acts->error[side])
        vu_ep_to(&part->eps[conn][side], IBV_QPS_ERR);
    if (acts->reset[side])
        vu_ep_to(&part->eps[conn][side], IBV_QPS_RESET);
    if (acts->revive[side])
        vu_ep_to(&part->eps[conn][side], IBV_QPS_RTS);
    if (acts->destroy[side])
        vu_ep_destroy(&part->eps[conn][side]);
}

static void note_end(struct board_end *note, const struct vu_ep *ep, uint32_t sges)
{
    note->qpn = ep->qp->qp_num;
    note->send_cap = ep->send_wr;
    note->recv_cap = ep->recv_wr;
    note->sge_cap = sges;
    note->inline_cap = ep->inline_bytes;
}

static void create_xrc(struct part *part, int side, const struct draw_end_attr *drawn,
                       struct vu_ep *ep)
{
    struct ibv_qp_init_attr_ex target = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = part->xrcd};
    struct ibv_qp_init_attr_ex initiator = {.send_cq = part->cqs[drawn->send_cq],
                                            .cap = {.max_send_wr = drawn->send_wr,
                                                    .max_send_sge = drawn->sges,
                                                    .max_inline_data = drawn->inline_bytes},
                                            .qp_type = IBV_QPT_XRC_SEND,
                                            .sq_sig_all = drawn->sig_all,
                                            .comp_mask = IBV_QP_INIT_ATTR_PD,
                                            .pd = part->dev.pd};
    struct ibv_qp_init_attr_ex *init = side == 0 ? &initiator : &target;
    *ep = (struct vu_ep){.dev = &part->dev};
    ep->qp = ibv_create_qp_ex(part->dev.ctx, init);
    VU_CHECK(ep->qp, "an XRC QP: %s", strerror(errno));
    ep->send_wr = init->cap.max_send_wr;
    ep->inline_bytes = init->cap.max_inline_data;
}

static void create(struct part *part, enum ibv_qp_type type, const struct draw_end_attr *drawn,
                   struct vu_ep *ep)
{
    struct vu_ep_attr attr = {.type = type,
                              .send_wr = drawn->send_wr,
                              .recv_wr = drawn->recv_wr,
                              .send_sge = drawn->sges,
                              .recv_sge = drawn->sges,
                              .inline_bytes = drawn->inline_bytes,
                              .sig_all = drawn->sig_all,
                              .srq = drawn->uses_srq ? part->srqs[SRQ_PLAIN] : NULL,
                              .send_cq = part->cqs[drawn->send_cq],
                              .recv_cq = part->cqs[drawn->recv_cq]};
    vu_ep_create(&part->dev, &attr, ep);
}

static void act_create(struct part *part, int conn, int side)
{
    const struct draw_end_attr *drawn = &part->round.conns[conn].attrs[side];
    struct vu_ep *ep = &part->eps[conn][side];
    enum ibv_qp_type type = part->model.conns[conn].type;
    if (type == IBV_QPT_XRC_SEND)
        create_xrc(part, side, drawn, ep);
    else
        create(part, type, drawn, ep);
    TRACE(part, "p%d conn %d side %d: QP 0x%x of type %d, srq %d\n", part->proc, conn, side,
          ep->qp->qp_num, (int)type, drawn->uses_srq);
    note_end(&part->board->ends[conn][side], ep, drawn->sges);
}

static void act_connect(struct part *part, int conn, int side)
{
    const struct draw_conn_acts *acts = &part->round.conns[conn];
    struct vu_ep *ep = &part->eps[conn][side];
    if (acts->init) {
        part->attrs[conn][side] = acts->attrs[side];
        vu_ep_init(ep, &acts->attrs[side].conn);
    }
    if (acts->connect && part->model.link != LINK_STREAM) {
        int other = part->model.conns[conn].ends[!side].proc;
        struct vu_peer peer = {.qpn = part->board->ends[conn][!side].qpn,
                               .gid = part->board->procs[other].gid};
        vu_ep_rtr(ep, &peer, &part->attrs[conn][side].conn);
        vu_ep_rts(ep, &part->attrs[conn][side].conn);
    }
}

static void each_own_end(struct part *part, void (*act)(struct part *, int, int), bool creating)
{
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++)
            if (part->model.conns[conn].ends[side].proc == part->proc &&
                (!creating || part->round.conns[conn].create))
                act(part, conn, side);
    part_meet(part);
}

static void modify_ud(struct ibv_qp *qp, enum ibv_qp_state state, uint32_t qkey, int mask)
{
    struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1, .qkey = qkey};
    VU_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask), 0);
}

static void act_ud(struct part *part, int ud)
{
    const struct draw_ud_acts *acts = &part->round.uds[part->proc][ud];
    struct vu_ep *ep = &part->uds[ud];
    if (acts->destroy)
        vu_ep_destroy(ep);
    if (acts->error)
        vu_ep_to(ep, IBV_QPS_ERR);
    if (acts->reset)
        vu_ep_to(ep, IBV_QPS_RESET);
    if (acts->revive)
        vu_ep_to(ep, IBV_QPS_RTS);
    if (acts->rekey)
        modify_ud(ep->qp, IBV_QPS_RTS, acts->qkey, IBV_QP_QKEY);
    if (acts->create) {
        create(part, IBV_QPT_UD, &acts->attr, ep);
        note_end(&part->board->uds[part->proc][ud], ep, acts->attr.sges);
        TRACE(part, "p%d ud %d: QP 0x%x, srq %d\n", part->proc, ud, ep->qp->qp_num,
              acts->attr.uses_srq);
    }
    if (acts->init)
        modify_ud(ep->qp, IBV_QPS_INIT, acts->qkey, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    if (acts->ready)
        modify_ud(ep->qp, IBV_QPS_RTR, 0, 0);
    if (acts->active)
        modify_ud(ep->qp, IBV_QPS_RTS, 0, IBV_QP_SQ_PSN);
}

static void learn_end(struct model_end *end, const struct board_end *note)
{
    end->send_cap = note->send_cap;
    end->recv_cap = note->recv_cap;
    end->sge_cap = note->sge_cap;
    end->inline_cap = note->inline_cap;
}

static void learn_caps(struct part *part)
{
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++)
            learn_end(&part->model.conns[conn].ends[side], &part->board->ends[conn][side]);
    for (int proc = 0; proc < PROCS; proc++)
        for (int ud = 0; ud < UDS; ud++)
            learn_end(&part->model.uds[proc][ud], &part->board->uds[proc][ud]);
}

void part_change(struct part *part)
{
    draw_admin(&part->draw, &part->round);
    each_own_end(part, act_break, false);
    act_mws(part, MW_DEALLOC);
    act_mrs(part);
    act_mws(part, MW_ALLOC);
    for (int ud = 0; ud < UDS; ud++)
        act_ud(part, ud);
    each_own_end(part, act_create, true);
    learn_caps(part);
    each_own_end(part, act_connect, false);
    if (part->model.link == LINK_STREAM)
        part_connect(part);
}

uint8_t *part_srq_slot(const struct part *part, enum srq srq, uint64_t slot)
{
    return part->arena + model_srq_lane(srq) + slot * SLOT_BYTES;
}

static void create_srq(struct part *part, enum srq srq)
{
    struct ibv_pd *pd = srq == SRQ_XRC_FOREIGN ? part->foreign_pd : part->dev.pd;
    struct ibv_srq_init_attr_ex init = {.attr = {.max_wr = RECV_SLOTS, .max_sge = 1},
                                        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                                        .srq_type = IBV_SRQT_XRC,
                                        .pd = pd,
                                        .xrcd = part->xrcd,
                                        .cq = part->cqs[srq % CQS]};
    if (srq == SRQ_PLAIN) {
        init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        init.srq_type = IBV_SRQT_BASIC;
    }
    part->srqs[srq] = ibv_create_srq_ex(part->dev.ctx, &init);
    VU_CHECK(part->srqs[srq], "SRQ %d: %s", (int)srq, strerror(errno));
    if (srq != SRQ_PLAIN)
        VU_EQ(ibv_get_srq_num(part->srqs[srq], &part->board->procs[part->proc].srq_nums[srq]), 0);
    part->srq_mrs[srq] =
        ibv_reg_mr(pd, part_srq_slot(part, srq, 0), LANE_BYTES, IBV_ACCESS_LOCAL_WRITE);
    VU_TRUE(part->srq_mrs[srq]);
}

/* iWARP has one kind. */
static int srq_count(const struct part *part)
{
    return part->model.link == LINK_STREAM ? SRQ_PLAIN + 1 : SRQS;
}

void part_begin(struct part *part)
{
    struct ibv_xrcd_init_attr init = {.comp_mask =
                                          IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = -1,
                                      .oflags = O_CREAT};
    for (int cq = 0; cq < CQS; cq++) {
        part->cqs[cq] = ibv_create_cq(part->dev.ctx, 512, NULL, NULL, 0);
        VU_TRUE(part->cqs[cq]);
    }
    part->foreign_pd = ibv_alloc_pd(part->dev.ctx);
    if (part->model.link != LINK_STREAM)
        part->xrcd = ibv_open_xrcd(part->dev.ctx, &init);
    VU_TRUE(part->foreign_pd && (part->xrcd || part->model.link == LINK_STREAM));
    for (int srq = 0; srq < srq_count(part); srq++)
        create_srq(part, (enum srq)srq);
    memset(part->srq_taken, true, sizeof(part->srq_taken));
    part->stale_lkey = part->board->procs[part->proc].stale_rkey = 0;
}

static void drop_events(struct part *part)
{
    while (vu_async_event(part->dev.ctx, (enum ibv_event_type) - 1, 0))
        ;
}

void part_finish(struct part *part)
{
    drop_events(part);
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++)
            if (part_end(part, conn, side) && part_end(part, conn, side)->exists)
                vu_ep_destroy(&part->eps[conn][side]);
    for (int ud = 0; ud < UDS; ud++)
        if (part->model.uds[part->proc][ud].exists)
            vu_ep_destroy(&part->uds[ud]);
    for (int slot = 0; slot < MWS; slot++)
        if (part->mws[slot])
            VU_EQ(ibv_dealloc_mw(part->mws[slot]), 0);
    memset(part->mws, 0, sizeof(part->mws));
    for (int slot = 0; slot < MRS; slot++)
        if (part->mrs[slot])
            VU_EQ(ibv_dereg_mr(part->mrs[slot]), 0);
    memset(part->mrs, 0, sizeof(part->mrs));
    for (int srq = 0; srq < srq_count(part); srq++) {
        VU_EQ(ibv_dereg_mr(part->srq_mrs[srq]), 0);
        VU_EQ(ibv_destroy_srq(part->srqs[srq]), 0);
    }
    if (part->xrcd)
        VU_EQ(ibv_close_xrcd(part->xrcd), 0);
    VU_EQ(ibv_dealloc_pd(part->foreign_pd), 0);
    for (int cq = 0; cq < CQS; cq++)
        VU_EQ(ibv_destroy_cq(part->cqs[cq]), 0);
}
