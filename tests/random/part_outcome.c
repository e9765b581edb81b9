/* SPDX-License-Identifier: BSD-2-Clause */
/* What comes of a round: completions, states, memory. */
#include <endian.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part.h"

#define POLL_TIMEOUT_MS 10000

/* What the model cannot know: a message's header, or a buffer that a failed receive left anyhow.
 * The first `len` bytes of the receive, or all of them; but not elements with a bad key, which
 * nobody may have written by it, and which may lie where another message is about to arrive. */
static void learn_memory(struct part *part, const struct model_recv *recv, uint32_t len)
{
    for (int i = 0; i < recv->sge_count && len; i++) {
        const struct model_sge *sge = &recv->sges[i];
        uint32_t here = sge->len_bytes < len ? sge->len_bytes : len;
        len -= here;
        if (model_reaches(&part->model, part->proc, sge, IBV_ACCESS_LOCAL_WRITE))
            memcpy(part->model.shadows[part->proc] + sge->offset, part->arena + sge->offset, here);
    }
}

static void check_arrived(struct part *part, const struct model_expect *one,
                          const struct ibv_wc *wc)
{
    if (!one->any_wr_id) {
        if (one->undefined || one->has_grh)
            learn_memory(part, &one->recv, one->undefined ? ARENA_BYTES : GRH_BYTES);
        return;
    }
    uint64_t slot = wc->wr_id & 0xff;
    uint32_t from = one->has_grh ? GRH_BYTES : 0;
    VU_TRUE(slot < RECV_SLOTS && !part->srq_taken[one->srq][slot]);
    part->srq_taken[one->srq][slot] = true;
    if (one->payload)
        VU_CHECK(memcmp(part_srq_slot(part, one->srq, slot) + from, one->payload + from,
                        one->byte_len - from) == 0,
                 "not what was sent");
}

/* The header that came with it leads back to the sender. */
static void check_sender(struct part *part, const struct model_expect *one, const struct ibv_wc *wc)
{
    VU_EQ(wc->src_qp, part->board->uds[one->src_proc][one->src_ud].qpn);
    VU_TRUE(wc->wc_flags & IBV_WC_GRH);
    const uint8_t *at = one->any_wr_id ? part_srq_slot(part, one->srq, wc->wr_id & 0xff) : NULL;
    if (!at && one->recv.sges[0].len_bytes >= GRH_BYTES)
        at = part->arena + one->recv.sges[0].offset;
    if (!at)
        return;
    struct ibv_wc copy = *wc;
    struct ibv_grh grh;
    memcpy(&grh, at, sizeof(grh));
    struct ibv_ah *back = ibv_create_ah_from_wc(part->dev.pd, &copy, &grh, 1);
    VU_TRUE(back);
    VU_EQ(ibv_destroy_ah(part->ahs[one->src_proc]), 0);
    part->ahs[one->src_proc] = back;
}

/* The first that this may be: those of one SRQ come in order, and others' may come between. */
static struct model_expect *find_expect(struct model_queue *queue, const struct ibv_wc *wc)
{
    bool shared = wc->wr_id & SRQ_BIT;
    for (int i = 0; i < queue->count; i++) {
        struct model_expect *one = &queue->expects[i];
        if (one->seen)
            continue;
        if (!one->any_wr_id || (shared && (uint64_t)one->srq == (wc->wr_id >> 8 & 0xff)))
            return one;
    }
    return NULL;
}

static void check_content(struct part *part, const struct model_expect *one,
                          const struct ibv_wc *wc, bool receive)
{
    VU_EQ(wc->opcode, one->opcode);
    if (one->has_len)
        VU_EQ(wc->byte_len, one->byte_len);
    if (receive) {
        VU_EQ(!!(wc->wc_flags & IBV_WC_WITH_IMM), one->has_imm);
        VU_EQ(!!(wc->wc_flags & IBV_WC_WITH_INV), one->has_inv);
    }
    if (one->has_imm)
        VU_EQ(be32toh(wc->imm_data), one->imm);
    if (one->has_inv)
        VU_EQ(wc->invalidated_rkey, part->board->procs[part->proc].mw_rkeys[one->mw]);
    if (one->has_grh)
        check_sender(part, one, wc);
}

static void check_wc(struct part *part, struct model_end *end, int *seen, const char *name,
                     const struct ibv_wc *wc)
{
    bool receive = wc->wr_id & RECV_BIT;
    struct model_queue *queue = receive ? &end->receives : &end->sends;
    TRACE(part, "p%d %s wr %llx: %s\n", part->proc, name, (unsigned long long)wc->wr_id,
          ibv_wc_status_str(wc->status));
    struct model_expect *one = find_expect(queue, wc);
    VU_CHECK(one, "%s: a completion nobody waits for: wr %llx: %s", name,
             (unsigned long long)wc->wr_id, ibv_wc_status_str(wc->status));
    seen[receive]++;
    one->seen = true;
    /* The first that is cut may be told why (docs/iwarp.md). */
    const bool is_refused =
        one->may_be_cut && !queue->is_cut && wc->status == IBV_WC_REM_ACCESS_ERR;
    queue->is_cut |= one->may_be_cut && (wc->status == IBV_WC_WR_FLUSH_ERR || is_refused);
    const enum ibv_wc_status status = is_refused                         ? IBV_WC_REM_ACCESS_ERR
                                      : one->may_be_cut && queue->is_cut ? IBV_WC_WR_FLUSH_ERR
                                                                         : one->status;
    if ((wc->wr_id != one->wr_id && !one->any_wr_id) ||
        (one->not_success ? wc->status == IBV_WC_SUCCESS : wc->status != status))
        VU_FAIL("%s %s: wr %llx with \"%s\", not %llx with \"%s\"", name,
                receive ? "receive" : "send", (unsigned long long)wc->wr_id,
                ibv_wc_status_str(wc->status), (unsigned long long)one->wr_id,
                one->not_success ? "an error" : ibv_wc_status_str(status));
    if (receive)
        check_arrived(part, one, wc);
    if (wc->status == IBV_WC_SUCCESS) /* otherwise the rest of it means nothing */
        check_content(part, one, wc, receive);
}

static void dispatch(struct part *part, const struct ibv_wc *wc)
{
    char name[40];
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++) {
            struct model_end *end = part_end(part, conn, side);
            if (end && end->exists && part->eps[conn][side].qp->qp_num == wc->qp_num) {
                snprintf(name, sizeof(name), "conn %d side %d", conn, side);
                check_wc(part, end, part->seen[conn][side], name, wc);
                return;
            }
        }
    for (int ud = 0; ud < UDS; ud++) {
        struct model_end *end = &part->model.uds[part->proc][ud];
        if (end->exists && part->uds[ud].qp->qp_num == wc->qp_num) {
            snprintf(name, sizeof(name), "ud %d", ud);
            check_wc(part, end, part->ud_seen[ud], name, wc);
            return;
        }
    }
    VU_FAIL("a completion of QP 0x%x, which is not", wc->qp_num);
}

static int poll_all(struct part *part)
{
    struct ibv_wc wcs[8];
    int total = 0;
    for (int cq = 0; cq < CQS; cq++) {
        int n = ibv_poll_cq(part->cqs[cq], 8, wcs);
        VU_TRUE(n >= 0);
        for (int i = 0; i < n; i++)
            dispatch(part, &wcs[i]);
        total += n;
    }
    return total;
}

static bool end_is_settled(const struct model_end *end, const struct vu_ep *ep, const int *seen,
                           const char *name, int index, char *why, size_t room)
{
    if (!end || !end->exists)
        return true;
    enum ibv_qp_state state = vu_ep_state(ep);
    snprintf(why, room, "%s %d: %d of %d sends, %d of %d receives; state %d of %d", name, index,
             seen[0], end->sends.count, seen[1], end->receives.count, (int)state, (int)end->state);
    return seen[0] == end->sends.count && seen[1] == end->receives.count && state == end->state;
}

/* All expected completions are here and the QPs are in the states they must be in. */
static bool is_settled(struct part *part, char *why, size_t room)
{
    for (int i = 0; i < CONNS * 2; i++)
        if (!end_is_settled(part_end(part, i / 2, i % 2), &part->eps[i / 2][i % 2],
                            part->seen[i / 2][i % 2], "end", i, why, room))
            return false;
    for (int ud = 0; ud < UDS; ud++)
        if (!end_is_settled(&part->model.uds[part->proc][ud], &part->uds[ud], part->ud_seen[ud],
                            "ud", ud, why, room))
            return false;
    return true;
}

/* Memory that the engine may still be writing, which is what is being waited for: no sanitizer's
 * business. */
__attribute__((no_sanitize("thread"))) static bool memory_agrees(const struct part *part,
                                                                 uint64_t *at)
{
    const volatile uint64_t *seen = (const volatile uint64_t *)part->arena;
    const uint64_t *shadow = (const uint64_t *)part->model.shadows[part->proc];
    for (uint64_t i = 0; i < SRQ_LANE * LANE_BYTES / 8; i++) {
        uint64_t differs = seen[i] ^ shadow[i];
        if (!differs)
            continue;
        *at = i * 8 + (uint64_t)__builtin_ctzll(differs) / 8;
        return false;
    }
    return true;
}

/* Waits until the peer has acknowledged all that was sent. */
static void drain(struct part *part, const struct vu_ep *ep, uint64_t deadline)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};
    struct ibv_qp_init_attr init;
    VU_EQ(ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE), 0);
    for (attr.sq_draining = 1; attr.sq_draining;) {
        VU_CHECK(vu_now_ms() < deadline, "QP 0x%x is not drained", ep->qp->qp_num);
        poll_all(part);
        VU_EQ(ibv_query_qp(ep->qp, &attr, IBV_QP_STATE, &init), 0);
        sched_yield();
    }
    attr.qp_state = IBV_QPS_RTS;
    VU_EQ(ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE), 0);
}

/* Over packets what needs no completion is done, but the ACK that says so may be late: a queue pair
 * that is taken to ERR before that flushes it. */
static void drain_all(struct part *part, uint64_t deadline)
{
    for (int i = 0; i < CONNS * 2; i++) {
        const struct model_end *end = part_end(part, i / 2, i % 2);
        const struct vu_ep *ep = &part->eps[i / 2][i % 2];
        if (end && end->exists && end->state == IBV_QPS_RTS &&
            (ep->qp->qp_type == IBV_QPT_RC || ep->qp->qp_type == IBV_QPT_XRC_SEND))
            drain(part, ep, deadline);
    }
}

/* What others know of a program that stands still, before it ends: RANDOM_ON_STALL, a command. */
static bool is_late(uint64_t deadline)
{
    const char *command = getenv("RANDOM_ON_STALL");
    if (vu_now_ms() < deadline)
        return false;
    unsetenv("LD_PRELOAD"); /* a sanitizer's library in a shell that has none */
    if (command && system(command))
        fprintf(stderr, "RANDOM_ON_STALL: %s failed\n", command);
    return true;
}

void part_settle(struct part *part)
{
    char why[120] = "";
    uint64_t deadline = vu_now_ms() + POLL_TIMEOUT_MS;
    while (poll_all(part) || !is_settled(part, why, sizeof(why))) {
        VU_CHECK(!is_late(deadline), "%s", why);
        sched_yield();
    }
    /* Requests without a completion are done in their own time. */
    uint64_t at = 0;
    while (!memory_agrees(part, &at)) {
        VU_CHECK(!is_late(deadline), "byte 0x%llx (lane %llu) is 0x%02x, not 0x%02x",
                 (unsigned long long)at, (unsigned long long)at / LANE_BYTES, part->arena[at],
                 part->model.shadows[part->proc][at]);
        poll_all(part);
        sched_yield();
    }
    part_meet(part);
    /* One completion too many fails there. So does a datagram that should have been dropped; those
     * that are, are taken out by the same calls, before anything changes. */
    for (int i = 0; i < 3; i++)
        poll_all(part);
    if (part->model.link == LINK_PACKETS)
        drain_all(part, deadline);
    VU_CHECK(memory_agrees(part, &at), "byte 0x%llx changed late", (unsigned long long)at);
    part_meet(part);
}
