/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/handoff.h"

#include "base/clock.h"

#define SERVED_NS (20 * SW_NS_PER_MS) /* how long one-sided requests are expected to go on */
#define POLLING_NS (8 * SW_NS_PER_US) /* polls come closer than that, the way here included */
#define DOUBT_NS (20 * SW_NS_PER_US)  /* then a program that polls no more shows */
#define VAIN_MAX 16u                  /* wakes for nothing, in a row */
#define LEAVE_NS (100 * SW_NS_PER_US) /* then for this long, and each time twice as long, ... */
#define RESTRAINT_MAX 5u              /* ... so many times */

void sw_handoff_wake(struct sw_handoff *handoff)
{
    handoff->was_woken = true;
}

static void leave_packets(struct sw_handoff *handoff, uint64_t now_ns)
{
    handoff->vain = 0;
    handoff->leaves_until_ns = now_ns + (LEAVE_NS << handoff->restraint);
    handoff->restraint += handoff->restraint < RESTRAINT_MAX;
}

/* Whether it is to be seen yet if the program takes in by itself what woke the engine. */
static bool awaits_poll(struct sw_handoff *handoff, uint64_t now_ns)
{
    const bool polls = now_ns < handoff->polled_ns + POLLING_NS;
    if (handoff->doubts_until_ns == 0) {
        if (!handoff->was_woken || !polls)
            return false;
        handoff->doubts_until_ns = now_ns + DOUBT_NS;
    }
    if (now_ns < handoff->doubts_until_ns)
        return true;
    handoff->doubts_until_ns = 0;
    if (polls) {
        handoff->was_woken = false;
        leave_packets(handoff, now_ns);
    }
    return false;
}

bool sw_handoff_look(struct sw_handoff *handoff, uint64_t polled_ns, bool sleeps,
                     uint64_t served_ns, uint64_t now_ns)
{
    if (polled_ns != handoff->polled_ns) {
        handoff->polled_ns = polled_ns;
        handoff->looked_ns = now_ns;
    }
    handoff->is_alone = now_ns - handoff->looked_ns >= SW_HANDOFF_LOOK_NS ||
                        (sleeps && now_ns >= handoff->leaves_until_ns);
    handoff->is_served = now_ns < served_ns + SERVED_NS;
    if (handoff->is_alone) {
        handoff->doubts_until_ns = 0;
        return true;
    }
    return handoff->is_served && !awaits_poll(handoff, now_ns) &&
           now_ns >= handoff->leaves_until_ns;
}

void sw_handoff_learn(struct sw_handoff *handoff, uint32_t received, uint64_t now_ns)
{
    if (!handoff->was_woken)
        return;
    handoff->was_woken = false;
    handoff->vain = received ? 0 : handoff->vain + 1;
    if (received)
        handoff->restraint = 0;
    if (handoff->vain >= VAIN_MAX)
        leave_packets(handoff, now_ns);
}

uint64_t sw_handoff_yield(struct sw_handoff *handoff, bool watches, uint64_t now_ns)
{
    sw_handoff_learn(handoff, 0, now_ns);
    return now_ns + (watches ? DOUBT_NS : SW_HANDOFF_LOOK_NS);
}

uint64_t sw_handoff_due_ns(const struct sw_handoff *handoff)
{
    return handoff->doubts_until_ns ? handoff->doubts_until_ns
                                    : handoff->looked_ns + SW_HANDOFF_LOOK_NS;
}
