/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * FLUSH (IBTA Vol1 annex A19). All processors of a host see the same memory, so bytes are visible
 * to everyone when the processor that moves them has: what earlier requests left to the target is
 * waited for, and the rest is a fence. Persistence is the target's to make, in order with what
 * else it executes: the memory is mapped there, and it knows what kind it is
 * (device/memory/persist.h).
 */
#include "link/direct/send/flush.h"

#include <sidewire/flush.h>

#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/direct/process/peer.h"
#include "link/direct/send/bounce.h"

enum sw_step sw_flush_start(struct sw_direct_qp *d, struct sw_wqe *wqe)
{
    struct sw_target_flush flush = sw_wqe_flush(wqe);
    const struct sw_pub_mr *mr;
    enum sw_verdict verdict =
        sw_target_check_flush(d->peer->pub, &flush, sw_remote_side(&d->remote), &mr);
    if (verdict != SW_ACK)
        return sw_step_refused(d, verdict);
    if (flush.type & IBV_FLUSH_PERSISTENT)
        return sw_bounce_ask(d, wqe, SW_REC_FLUSH);
    if (d->send.answers_due)
        return SW_STEP_BLOCKED;
    atomic_thread_fence(memory_order_seq_cst);
    return SW_STEP_DONE;
}
