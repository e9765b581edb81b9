/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages that the target must execute, because only it may take a receive from a queue that many
 * senders share. A short one bounces through the ring. For a long one the initiator says where it
 * is, and the target fetches it: one copy instead of two, and the initiator's processor is free.
 */
#include "link/direct/send/pull.h"

#include "device/memory/mr_impl.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/direct/process/peer.h"
#include "link/direct/send/bounce.h"
#include "link/direct/send/reach.h"
#include "link/gather.h"

/* Below this a second copy costs less than the fetch: of memory that the target has mapped, and of
 * other memory, by a system call. */
#define PULL_MAPPED_BYTES 4096u
#define PULL_CMA_BYTES 32768u

/* From which length on a message is worth a fetch; what comes from nowhere cannot be fetched. */
static uint32_t pull_from_bytes(struct sw_qp *qp, uint32_t position)
{
    const struct ibv_sge *sges = sw_sq_sges(&qp->sq, position);
    uint32_t from_bytes = PULL_MAPPED_BYTES;
    for (uint32_t i = 0; i < sw_sq_at(&qp->sq, position)->sge_count; i++) {
        const struct sw_pub_mr *mr = &sw_nic.pub->mrs[sw_key_index(sges[i].lkey)];
        if (mr->kind == SW_PUB_NULL)
            return UINT32_MAX;
        if (atomic_load_explicit(&mr->handed, memory_order_relaxed) == SW_HANDED_OUT_NOT)
            from_bytes = PULL_CMA_BYTES;
    }
    return from_bytes;
}

bool sw_pull_suits(struct sw_qp *qp, const struct sw_direct_qp *d, uint32_t position)
{
    const struct sw_wqe *wqe = sw_sq_at(&qp->sq, position);
    if (qp->sq.is_paced)
        return false; /* it comes as fast as the target takes it */
    return !(wqe->flags & SW_WQE_INLINE) && wqe->opcode != IBV_WR_SEND_WITH_INV &&
           qp->type == IBV_QPT_RC && atomic_load_explicit(&d->rx->can_pull, memory_order_relaxed) &&
           wqe->len_bytes >= pull_from_bytes(qp, position);
}

enum sw_step sw_pull(struct sw_direct_qp *d, const struct ibv_sge *list, uint32_t count)
{
    const struct sw_gather to = {.sges = d->serve.receive.claim.sges,
                                 .sge_count = d->serve.receive.claim.sge_count,
                                 .pd = d->serve.receive.claim.pd};
    uint64_t before = 0; /* message bytes in earlier elements */
    for (uint32_t i = 0; i < count; before += list[i].length, i++) {
        uint64_t here = list[i].length;
        if (d->serve.received_bytes >= before + here)
            continue;
        const struct sw_pub_mr *mr;
        uint64_t word;
        if (sw_target_check(d->peer->pub, list[i].lkey, list[i].addr, here, SW_PUB_LOCAL_USE,
                            sw_remote_own(&d->remote), &mr, &word) != SW_ACK ||
            sw_reach_probe(d->peer, mr, list[i].addr, here) == SW_REACH_RING)
            return sw_step_refused(d, SW_NAK_OPERATIONAL); /* it said that it could be fetched */
        uint32_t done = (uint32_t)(d->serve.received_bytes - before);
        enum sw_step step =
            sw_reach_move(d, &to, before, mr, list[i].addr, here, SW_MOVE_IN, &done);
        d->serve.received_bytes = (uint32_t)before + done;
        if (step != SW_STEP_DONE)
            return step;
    }
    return SW_STEP_DONE;
}
