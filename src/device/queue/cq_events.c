/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The events of completion queues. An event wakes the program, on this very processor as like as
 * not. A thread that takes in packets would then stand there with its locks held, with the rest of
 * the packets not looked at, and the program would sleep again until it has let go. So such a
 * thread holds its events back until it is done.
 *
 * An event that is held is one of a CQ that may be destroyed meanwhile, by its owner: he waits.
 */
#include <assert.h>
#include <sched.h>

#include "device/queue/cq_impl.h"

#define HELD_MAX 16u /* more are fired at once */

static _Thread_local struct {
    bool holds;
    uint32_t count;
    struct sw_cq *cqs[HELD_MAX];
} held __attribute__((tls_model("initial-exec"))); /* each poll looks: without a call */

void sw_cq_fire_now(struct sw_cq *cq)
{
    atomic_store(&cq->fire_at_ns, 0);
    if (atomic_exchange(&cq->pub->armed, SW_CQ_DISARMED) == SW_CQ_DISARMED || !cq->notify)
        return;
    atomic_fetch_add(&cq->events_held, 1);
    cq->notify(cq->owner);
    atomic_fetch_sub(&cq->events_held, 1);
}

static void fire_event(struct sw_cq *cq)
{
    if (!sw_cq_moderation_holds(cq))
        sw_cq_fire_now(cq);
}

static bool is_held(const struct sw_cq *cq)
{
    for (uint32_t i = 0; i < held.count; i++)
        if (held.cqs[i] == cq)
            return true;
    return false;
}

void sw_cq_fire(struct sw_cq *cq)
{
    if (!held.holds || (!is_held(cq) && held.count == HELD_MAX)) {
        fire_event(cq);
    } else if (!is_held(cq)) {
        atomic_fetch_add(&cq->events_held, 1);
        held.cqs[held.count++] = cq;
    }
}

void sw_cq_hold_events(void)
{
    assert(!held.holds);
    held.holds = true;
}

bool sw_cq_release_events(void)
{
    const bool fires = held.count;
    held.holds = false;
    for (uint32_t i = 0; i < held.count; i++) {
        fire_event(held.cqs[i]);
        atomic_fetch_sub(&held.cqs[i]->events_held, 1);
    }
    held.count = 0;
    return fires;
}

bool sw_cq_has_held(void)
{
    return held.count;
}

void sw_cq_await_events(const struct sw_cq *cq)
{
    while (atomic_load(&cq->events_held))
        sched_yield();
}
