/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moderation of completion events (ibv_modify_cq): an armed CQ's event is held back until so many
 * completions have come since it was armed, or for so long after the first of them. Only CQs that
 * asked for it come here with more than one load, and only while they are armed.
 */
#include "base/clock.h"
#include "device/nic/nic.h"
#include "device/queue/cq_impl.h"

static void enlist_cq(struct sw_cq *cq)
{
    cq->moderated_next = sw_nic.moderated;
    sw_nic.moderated = cq;
}

static void strike_off(struct sw_cq *cq)
{
    struct sw_cq **at = &sw_nic.moderated;
    while (*at != cq)
        at = &(*at)->moderated_next;
    *at = cq->moderated_next;
}

void sw_cq_moderate(struct sw_cq *cq, uint16_t count, uint16_t period_us)
{
    bool wanted = count > 1 && period_us > 0;
    pthread_mutex_lock(&sw_nic.lock);
    atomic_store(&cq->moderate_ns, period_us * SW_NS_PER_US);
    atomic_store(&cq->moderate_count, wanted ? count : 0);
    if (wanted && !cq->is_moderated)
        enlist_cq(cq);
    else if (!wanted && cq->is_moderated)
        strike_off(cq);
    cq->is_moderated = wanted;
    pthread_mutex_unlock(&sw_nic.lock);
    if (atomic_load(&cq->fire_at_ns)) /* held back under the rules before */
        sw_cq_fire_now(cq);
}

bool sw_cq_moderation_holds(struct sw_cq *cq)
{
    uint32_t count = atomic_load(&cq->moderate_count);
    if (!count || atomic_load(&cq->tail) - atomic_load(&cq->armed_at) >= count)
        return false;
    uint64_t none = 0, at_ns = sw_clock_ns() + atomic_load(&cq->moderate_ns);
    if (atomic_compare_exchange_strong(&cq->fire_at_ns, &none, at_ns))
        sw_nic.link->kick();
    return atomic_load(&cq->moderate_count) != 0; /* or it was switched off meanwhile */
}

uint64_t sw_cq_moderation_step(uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    pthread_mutex_lock(&sw_nic.lock);
    for (struct sw_cq *cq = sw_nic.moderated; cq; cq = cq->moderated_next) {
        uint64_t at_ns = atomic_load(&cq->fire_at_ns);
        if (at_ns && at_ns <= now_ns)
            sw_cq_fire_now(cq);
        else if (at_ns && at_ns < next_ns)
            next_ns = at_ns;
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return next_ns;
}
