/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/serve/flushing.h"

#include <sidewire/flush.h>

#include "base/cache_flush.h"
#include "base/card_memory.h"
#include "base/minmax.h"
#include "device/memory/mr_impl.h"
#include "device/memory/persist.h"
#include "device/memory/sync_job.h"
#include "device/memory/view.h"

#define CPU_STEP_BYTES (4u << 20) /* written back in one step: a poll does not take long */

void sw_flushing_drop(struct sw_flushing *state)
{
    if (state->job)
        sw_sync_job_drop(state->job);
    *state = (struct sw_flushing){0};
}

/* The peer may have changed its mind about the length meanwhile. */
static bool by_cpu(struct sw_flushing *state, uint64_t va, uint64_t len_bytes)
{
    uint64_t left = len_bytes > state->done_bytes ? len_bytes - state->done_bytes : 0;
    uint64_t now = sw_min_u64(left, CPU_STEP_BYTES);
    sw_cache_flush(sw_cache_flush_how(), (const void *)(uintptr_t)(va + state->done_bytes), now);
    state->done_bytes += now;
    return now == left;
}

static void tell_engine(void)
{
    sw_nic.link->kick();
}

/* Jobs are of the disk: one that hangs has many regions, and all of these wait for it. */
static bool by_sync(struct sw_flushing *state, const struct sw_pub_mr *mr, uint64_t va,
                    uint64_t len_bytes, enum sw_verdict *verdict)
{
    int rc;
    if (len_bytes == 0)
        return true; /* `verdict` is good already, and there is no file to wait for */
    if (!state->job)
        state->job = sw_sync_job_start(sw_persist_disk(mr->persist), va, len_bytes, tell_engine);
    state->has_no_job = !state->job;
    if (!state->job || !sw_sync_job_ended(state->job, &rc))
        return false;
    *verdict = rc ? SW_NAK_OPERATIONAL : SW_ACK;
    return true;
}

bool sw_execute_flush(struct sw_qp *qp, const struct sw_inbound *message,
                      struct sw_target_flush flush, struct sw_flushing *state,
                      enum sw_verdict *verdict)
{
    const struct sw_target_qp own = {qp->qpn, message->pd, (uint32_t)qp->attr.qp_access_flags};
    const struct sw_pub_mr *mr;
    bool done = true;
    *verdict = sw_target_check_flush(sw_nic.pub, &flush, own, &mr); /* again, at each step */
    if (*verdict == SW_ACK && flush.type & IBV_FLUSH_PERSISTENT) {
        uint64_t va = (uintptr_t)sw_view_at(sw_nic.pub, mr, flush.addr);
        const enum sw_persist how = sw_persist_how(mr->persist);
        if (how == SW_PERSIST_BY_READ)
            sw_card_memory_settle((const uint8_t *)(uintptr_t)va);
        else
            done = how == SW_PERSIST_BY_CPU ? by_cpu(state, va, flush.len_bytes)
                                            : by_sync(state, mr, va, flush.len_bytes, verdict);
    }
    atomic_thread_fence(memory_order_seq_cst);
    if (done)
        sw_flushing_drop(state);
    return done;
}
