/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/connections/farewell.h"

#include <stddef.h>

#include "base/clock.h"
#include "device/queue/settle.h"
#include "rdmacm/connections/event.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/agent.h"

/* A packet that another process of the host got first is here within a millisecond, unless that
 * process waits for a processor. If it is lost, it is asked for again: the first time after 40 ms,
 * then after twice as long (transport/retry.c). On a machine that is so busy that this process
 * cannot look as often as it wants, all of that takes longer. */
#define LOOK_NS (200 * SW_NS_PER_US)
#define LOOKS_MIN 1500u
#define PATIENCE_MAX_NS (3 * SW_NS_PER_S)

static struct sw_ucm_id *held; /* IDs whose programs have not been told */

void sw_ucm_farewell_forget(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_id **at = &held;
    if (!id->farewell_ns)
        return;
    while (*at != id)
        at = &(*at)->farewell_next;
    *at = id->farewell_next;
    id->farewell_ns = 0;
}

void sw_ucm_farewell_finish(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    if (!id->farewell_ns)
        return;
    sw_ucm_farewell_forget(id);
    sw_ucm_event_tell(id, SW_UCM_DISCONNECTED_EVENT, 0);
}

void sw_ucm_farewell_hear(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    if (!sw_qp_settle(id->qpn)) {
        sw_ucm_event_tell(id, SW_UCM_DISCONNECTED_EVENT, 0);
        return;
    }
    const uint64_t now_ns = sw_clock_ns();
    id->farewell_ns = now_ns;
    id->farewell_looks = 0;
    id->farewell_next = held;
    held = id;
    sw_agent_plan(now_ns + LOOK_NS);
}

static bool is_out_of_patience(struct sw_ucm_id *id, uint64_t now_ns)
{
    const uint64_t waited_ns = now_ns > id->farewell_ns ? now_ns - id->farewell_ns : 0;
    id->farewell_looks++;
    return waited_ns >= PATIENCE_MAX_NS ||
           (id->farewell_looks >= LOOKS_MIN && waited_ns >= LOOKS_MIN * LOOK_NS);
}

uint64_t sw_ucm_farewell_tick(uint64_t now_ns)
{
    sw_rdmacm_assert_locked();
    for (struct sw_ucm_id *id = held, *next; id; id = next) {
        next = id->farewell_next;
        const bool waits = sw_qp_settle(id->qpn); /* also the last time, which may be late */
        if (!waits || is_out_of_patience(id, now_ns))
            sw_ucm_farewell_finish(id);
    }
    return held ? now_ns + LOOK_NS : UINT64_MAX;
}

void sw_ucm_farewell_fork_child(void)
{
    held = NULL;
}
