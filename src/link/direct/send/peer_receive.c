/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/send/peer_receive.h"

#include <string.h>

#include "base/minmax.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/direct/process/peer.h"
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
                           sw_remote_own(&d->remote), mr, word);
}

static void peer_receive_add_run(struct sw_placing *placing, uint8_t *to, uint64_t len_bytes)
{
    if (!to) {
        placing->unmapped++;
        placing->unmapped_bytes += len_bytes;
    }
    if (placing->count < SW_PLACING_RUNS)
        placing->runs[placing->count] = (struct sw_placing_run){to, (uint32_t)len_bytes};
    placing->count++;
}

/* The first len_bytes of an element. */
static void add_element(struct sw_direct_qp *d, const struct ibv_sge *sge, uint64_t len_bytes,
                        const struct sw_pub_mr *mr, uint64_t word, struct sw_placing *placing)
{
    uint8_t *to = sw_reach_remembered(d, sge->lkey, sge->addr, len_bytes, IBV_ACCESS_LOCAL_WRITE);
    if (to) {
        peer_receive_add_run(placing, to, len_bytes);
        return;
    }
    for (uint64_t at = 0; at < len_bytes;) {
        const struct sw_reach_run run =
            sw_reach_run_at(d->peer, mr, sge->addr + at, len_bytes - at);
        if (run.at && run.len_bytes == len_bytes)
            sw_reach_remember(d, sge->lkey, mr, word, sge->addr);
        if (run.reach > placing->reach)
            placing->reach = run.reach;
        /* Memory on demand may not be there, which the kernel says, and a program's poll does not.
         * A mapping that is coming is worth waiting for. */
        placing->keeps_away |= run.is_coming || mr->access & IBV_ACCESS_ON_DEMAND;
        peer_receive_add_run(placing, run.at, run.len_bytes);
        at += run.len_bytes;
    }
}

enum sw_verdict sw_peer_receive_judge(struct sw_direct_qp *d, const struct sw_peer_receive *receive,
                                      uint64_t len_bytes, struct sw_placing *placing)
{
    uint64_t room = 0;
    placing->reach = SW_REACH_DIRECT;
    placing->count = placing->unmapped = 0;
    placing->unmapped_bytes = 0;
    placing->keeps_away = false;
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
        add_element(d, sge, used, mr, word, placing);
        len_bytes -= used;
    }
    return SW_ACK;
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
    *verdict = check_element(d, sge, &mr, &word) == SW_ACK ? SW_ACK : SW_NAK_OPERATIONAL;
    if (*verdict != SW_ACK)
        return SW_STEP_DONE;
    enum sw_step step =
        sw_reach_move(d, gather, before, mr, sge->addr, len_bytes, SW_MOVE_OUT, &done);
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
