/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/send/peer_receive.h"

#include <string.h>

#include "base/fault.h"
#include "base/minmax.h"
#include "base/payload.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/gather.h"

void sw_peer_receive_read(const struct sw_direct_qp *d, struct sw_peer_receive *out)
{
    const struct sw_pub_recv *recv =
        (const struct sw_pub_recv *)(d->remote.rq +
                                     (size_t)(d->send.recv_used & (d->remote.rq_entries - 1)) *
                                         d->remote.rq_stride);
    uint32_t count = recv->sge_count;
    uint32_t room = (uint32_t)((d->remote.rq_stride - sizeof(*recv)) / sizeof(struct ibv_sge));
    if (count > room || count > SW_MAX_SGE)
        count = 0;
    memcpy(out->sges, recv->sges, count * sizeof(*out->sges));
    out->count = count;
}

static enum sw_verdict check_element(const struct sw_direct_qp *d, const struct ibv_sge *sge,
                                     const struct sw_pub_mr **mr, uint64_t *word)
{
    return sw_target_check(d->peer->pub, sge->lkey, sge->addr, sge->length, IBV_ACCESS_LOCAL_WRITE,
                           sw_remote_own(d), mr, word);
}

enum sw_verdict sw_peer_receive_judge(struct sw_direct_qp *d, const struct sw_peer_receive *receive,
                                      uint64_t len_bytes, enum sw_reach *reach)
{
    uint64_t room = 0;
    *reach = SW_REACH_DIRECT;
    for (uint32_t i = 0; i < receive->count; i++)
        room += receive->sges[i].length;
    const enum sw_verdict verdict = sw_target_check_room(room, 0, len_bytes);
    if (verdict != SW_ACK)
        return verdict;
    for (uint32_t i = 0; i < receive->count && len_bytes; i++) {
        const struct ibv_sge *sge = &receive->sges[i];
        const uint64_t used = sw_min_u64(sge->length, len_bytes);
        if (!used)
            continue;
        const struct sw_pub_mr *mr;
        uint64_t word;
        if (check_element(d, sge, &mr, &word) != SW_ACK)
            return SW_NAK_OPERATIONAL;
        enum sw_reach here =
            sw_reach_remembered(d, sge->lkey, sge->addr, used, IBV_ACCESS_LOCAL_WRITE)
                ? SW_REACH_DIRECT
                : sw_reach_probe(d->peer, mr, sge->addr, used);
        if (here > *reach)
            *reach = here;
        len_bytes -= used;
    }
    return SW_ACK;
}

/* At once, where the element is remembered as mapped and its bytes lie in one place. false: not so,
 * and nothing was done. */
static bool copy_to_element(struct sw_direct_qp *d, const struct sw_gather *gather,
                            const struct ibv_sge *sge, uint64_t before, uint64_t len_bytes,
                            enum sw_step *step)
{
    uint8_t *remote =
        sw_reach_remembered(d, sge->lkey, sge->addr, len_bytes, IBV_ACCESS_LOCAL_WRITE);
    uint64_t run = len_bytes;
    if (!remote || len_bytes > d->send.budget_bytes)
        return false;
    const uint8_t *local = sw_gather_at(gather, before, 0, &run);
    if (!local || run != len_bytes)
        return false;
    sw_payload_copy(remote, local, len_bytes);
    *step = sw_fault_any() ? sw_reach_judge(d, remote, local) : SW_STEP_DONE;
    if (*step == SW_STEP_DONE)
        d->send.budget_bytes -= len_bytes;
    return true;
}

/* The message's bytes [before, before + len_bytes) go to one element; `before` bytes went to those
 * ahead of it. */
static enum sw_step fill_element(struct sw_direct_qp *d, const struct sw_gather *gather,
                                 struct sw_wqe *wqe, const struct ibv_sge *sge, uint64_t before,
                                 uint64_t len_bytes, enum sw_verdict *verdict)
{
    const struct sw_pub_mr *mr;
    uint64_t word;
    uint32_t done = (uint32_t)(wqe->done_bytes - before);
    enum sw_step step;
    if (!done && copy_to_element(d, gather, sge, before, len_bytes, &step)) {
        if (step == SW_STEP_DONE)
            wqe->done_bytes += (uint32_t)len_bytes;
        return step;
    }
    *verdict = check_element(d, sge, &mr, &word) == SW_ACK ? SW_ACK : SW_NAK_OPERATIONAL;
    if (*verdict != SW_ACK)
        return SW_STEP_DONE;
    step = sw_reach_move(d, gather, before, mr, sge->addr, len_bytes, false, &done);
    wqe->done_bytes = (uint32_t)before + done;
    if (step == SW_STEP_DONE)
        sw_reach_remember(d, sge->lkey, mr, word, sge->addr);
    return step;
}

enum sw_step sw_peer_receive_fill(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                                  uint32_t position, const struct sw_peer_receive *receive,
                                  enum sw_verdict *verdict)
{
    const struct sw_gather gather = sw_gather_of(qp, position);
    uint64_t before = 0; /* message bytes in earlier elements */
    *verdict = SW_ACK;
    for (uint32_t i = 0; i < receive->count && before < wqe->len_bytes; i++) {
        const struct ibv_sge *sge = &receive->sges[i];
        const uint64_t here = sw_min_u64(sge->length, wqe->len_bytes - before);
        if (here && wqe->done_bytes < before + here) {
            enum sw_step step = fill_element(d, &gather, wqe, sge, before, here, verdict);
            if (step != SW_STEP_DONE || *verdict != SW_ACK)
                return step;
        }
        before += here;
    }
    return SW_STEP_DONE;
}
