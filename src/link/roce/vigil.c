/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/roce/vigil.h"

#include "base/clock.h"

#define SERVED_NS (20 * SW_NS_PER_MS) /* how long one-sided requests are expected to go on */
#define POLLING_NS (8 * SW_NS_PER_US) /* polls come closer than that, the way here included */
#define DOUBT_NS (20 * SW_NS_PER_US)  /* then a program that polls no more shows */
#define VAIN_MAX 16u                  /* wakes for nothing, in a row */
#define LEAVE_NS (100 * SW_NS_PER_US) /* then for this long, and each time twice as long, ... */
#define RESTRAINT_MAX 5u              /* ... so many times */

void sw_vigil_wake(struct sw_vigil *vigil)
{
    vigil->was_woken = true;
}

static void leave(struct sw_vigil *vigil, uint64_t now_ns)
{
    vigil->vain = 0;
    vigil->leaves_until_ns = now_ns + (LEAVE_NS << vigil->restraint);
    vigil->restraint += vigil->restraint < RESTRAINT_MAX;
}

/* Whether it is to be seen yet if the program takes in by itself what woke the engine. */
static bool doubts(struct sw_vigil *vigil, uint64_t now_ns)
{
    const bool polls = now_ns < vigil->polled_ns + POLLING_NS;
    if (vigil->doubts_until_ns == 0) {
        if (!vigil->was_woken || !polls)
            return false;
        vigil->doubts_until_ns = now_ns + DOUBT_NS;
    }
    if (now_ns < vigil->doubts_until_ns)
        return true;
    vigil->doubts_until_ns = 0;
    if (polls) {
        vigil->was_woken = false;
        leave(vigil, now_ns);
    }
    return false;
}

bool sw_vigil_look(struct sw_vigil *vigil, uint64_t polled_ns, bool sleeps, uint64_t served_ns,
                   uint64_t now_ns)
{
    if (polled_ns != vigil->polled_ns) {
        vigil->polled_ns = polled_ns;
        vigil->looked_ns = now_ns;
    }
    vigil->is_alone = now_ns - vigil->looked_ns >= SW_VIGIL_LOOK_NS ||
                      (sleeps && now_ns >= vigil->leaves_until_ns);
    vigil->is_served = now_ns < served_ns + SERVED_NS;
    if (vigil->is_alone) {
        vigil->doubts_until_ns = 0;
        return true;
    }
    return vigil->is_served && !doubts(vigil, now_ns) && now_ns >= vigil->leaves_until_ns;
}

void sw_vigil_learn(struct sw_vigil *vigil, uint32_t received, uint64_t now_ns)
{
    if (!vigil->was_woken)
        return;
    vigil->was_woken = false;
    vigil->vain = received ? 0 : vigil->vain + 1;
    if (received)
        vigil->restraint = 0;
    if (vigil->vain >= VAIN_MAX)
        leave(vigil, now_ns);
}

uint64_t sw_vigil_yield(struct sw_vigil *vigil, bool watches, uint64_t now_ns)
{
    sw_vigil_learn(vigil, 0, now_ns);
    return now_ns + (watches ? DOUBT_NS : SW_VIGIL_LOOK_NS);
}

uint64_t sw_vigil_due_ns(const struct sw_vigil *vigil)
{
    return vigil->doubts_until_ns ? vigil->doubts_until_ns : vigil->looked_ns + SW_VIGIL_LOOK_NS;
}
