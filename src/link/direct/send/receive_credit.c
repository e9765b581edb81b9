/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/send/receive_credit.h"

#include "base/clock.h"
#include "device/queue/counters.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/engine.h"

/* A sender that sleeps has the target ring when it has posted the receive. The target may have
 * posted it just now. */
static bool is_there_after_all(const struct sw_qp *qp, struct sw_direct_qp *d)
{
    const uint32_t number = d->send.recv_used + 1;
    if (!sw_engine_drives(qp))
        return false;
    if (atomic_load_explicit(&d->tx->awaits_posted, memory_order_relaxed) != number)
        atomic_store(&d->tx->awaits_posted, number);
    return sw_receive_is_there(d);
}

enum sw_step sw_receive_wait(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (d->send.in_doubt)
        return SW_STEP_BLOCKED; /* until that is answered */
    if (sw_receive_is_there(d) || is_there_after_all(qp, d)) {
        d->send.rnr_ns = 0;
        d->send.rnr_tries = 0;
        return SW_STEP_DONE;
    }
    return sw_receive_absent(qp, d);
}

enum sw_step sw_receive_absent(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (!sw_step_is_sound(qp))
        return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
    if (d->rules[SW_RNR].lost)
        return sw_step_refused(d, SW_RNR);
    uint64_t now_ns = sw_clock_ns();
    if (!d->send.rnr_ns) {
        d->send.rnr_ns = now_ns;
        sw_counter_add(qp->ctx->netdev, SW_RNR_RECEIVED);
    } else if (now_ns - d->send.rnr_ns >=
               sw_rnr_timer_ns(SW_PUB_GET(d->remote.entry->min_rnr_timer))) {
        d->send.rnr_ns = now_ns;
        d->send.rnr_tries++;
        sw_counter_add(qp->ctx->netdev, SW_RNR_RECEIVED);
    } else if (qp->attr.rnr_retry) {
        return SW_STEP_BLOCKED;
    }
    if (qp->attr.rnr_retry != 7 && d->send.rnr_tries >= qp->attr.rnr_retry)
        return sw_step_refused(d, SW_RNR_EXHAUSTED);
    return SW_STEP_BLOCKED;
}
