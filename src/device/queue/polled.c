/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/polled.h"

#include "base/clock.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "device/queue/xrc_impl.h"

/* The polls of a program that spins come closer than that, under load, too. */
#define SPIN_GAP_NS (20 * SW_NS_PER_US)
#define DOUBT_NS (20 * SW_NS_PER_US) /* then it shows whether it polls no more */
#define STEADY_TIMES 4u

static const struct sw_backoff_rule brief_polls = {.first = 64};

enum sw_poller sw_polled_look(struct sw_polled *polled, uint32_t looks, uint64_t now_ns)
{
    const uint64_t elapsed_ns = now_ns - polled->looked_ns;
    const uint32_t more = looks - polled->looks;
    polled->looks = looks;
    polled->looked_ns = now_ns;
    if (more && more >= elapsed_ns / SPIN_GAP_NS) {
        if (sw_backoff_skips(&polled->backoff))
            return SW_POLLER_NONE;
        polled->polled_ns = now_ns;
        polled->times += polled->times < STEADY_TIMES;
    } else if (!polled->polled_ns || now_ns - polled->polled_ns >= DOUBT_NS) {
        if (polled->times == 1)
            sw_backoff_fail_turn(&polled->backoff, &brief_polls);
        polled->polled_ns = 0;
        polled->times = 0;
        return SW_POLLER_NONE;
    }
    return polled->times < STEADY_TIMES ? SW_POLLER_PERHAPS : SW_POLLER_STEADY;
}

static void add_cq(const struct sw_cq *cq, uint32_t *looks, bool *armed)
{
    *looks += atomic_load_explicit(&cq->looks, memory_order_relaxed);
    *armed |= atomic_load(&cq->pub->armed) != SW_CQ_DISARMED;
}

static void add_domain(const struct sw_xrcd *xrcd, uint32_t *looks, bool *armed)
{
    sw_mutex_assert_held(&sw_nic.lock);
    for (const struct sw_srq *srq = xrcd->srqs; srq; srq = srq->domain_next)
        add_cq(srq->cq, looks, armed);
}

enum sw_poller sw_qp_poller(struct sw_qp *qp, uint64_t now_ns)
{
    uint32_t looks = 0;
    bool armed = false;
    add_cq(qp->send_cq, &looks, &armed);
    add_cq(qp->recv_cq, &looks, &armed);
    if (qp->xrcd)
        add_domain(qp->xrcd, &looks, &armed);
    const enum sw_poller poller = sw_polled_look(&qp->polled, looks, now_ns);
    return armed ? SW_POLLER_NONE : poller;
}
