/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/handoff.h"

#include "base/clock.h"
#include "base/minmax.h"

#define SERVED_NS (20 * SW_NS_PER_MS)  /* how long one-sided requests are expected to go on */
#define POLLING_NS (8 * SW_NS_PER_US)  /* polls come closer than that, the way here included */
#define DOUBT_NS (20 * SW_NS_PER_US)   /* then a program that polls no more shows */
#define STEADY_NS (250 * SW_NS_PER_US) /* no pause: a poll so long ago, with the way here */
#define STEADY_PART 8u                 /* of the time that it has polled the engine does not look */
#define PACE_MAX_NS (8 * SW_NS_PER_MS)

/* After wakes for nothing, in a row, packets are left to the program. */
static const struct sw_backoff_rule vain_wakes = {
    .first = 100 * SW_NS_PER_US, .doublings_max = 5, .failures_min = 16, .is_counted_anew = true};

void sw_handoff_wake(struct sw_handoff *handoff)
{
    handoff->was_woken = true;
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
        handoff->leaves_until_ns = now_ns + sw_backoff_rest(&handoff->backoff, &vain_wakes);
    }
    return false;
}

/* A pause ends what was steady. Only a program that is left alone with its packets can be. */
static void set_pace(struct sw_handoff *handoff, bool sleeps, uint64_t now_ns)
{
    const bool has_paused = now_ns >= handoff->polled_ns + STEADY_NS;
    handoff->pace_ns = 0;
    if (handoff->is_alone || handoff->is_served || sleeps || has_paused) {
        handoff->steady_ns = 0;
        return;
    }
    if (!handoff->steady_ns)
        handoff->steady_ns = now_ns;
    const uint64_t pace_ns = (now_ns - handoff->steady_ns) / STEADY_PART;
    if (pace_ns > SW_HANDOFF_LOOK_NS)
        handoff->pace_ns = sw_min_u64(pace_ns, PACE_MAX_NS);
}

bool sw_handoff_is_served(uint64_t served_ns, uint64_t now_ns)
{
    return now_ns < served_ns + SERVED_NS;
}

bool sw_handoff_look(struct sw_handoff *handoff, uint64_t polled_ns, bool sleeps,
                     uint64_t served_ns, uint64_t now_ns)
{
    if (polled_ns != handoff->polled_ns) {
        handoff->polled_ns = polled_ns;
        /* Between two looks that are far from each other it may have stopped long ago. */
        handoff->looked_ns = handoff->pace_ns ? sw_min_u64(polled_ns, now_ns) : now_ns;
    }
    handoff->is_alone = now_ns - handoff->looked_ns >= SW_HANDOFF_LOOK_NS ||
                        (sleeps && now_ns >= handoff->leaves_until_ns);
    handoff->is_served = sw_handoff_is_served(served_ns, now_ns);
    set_pace(handoff, sleeps, now_ns);
    /* Where no peer reaches for memory the packets are left to the program anyhow: nothing is in
     * doubt then. */
    if (handoff->is_alone || !handoff->is_served)
        handoff->doubts_until_ns = 0;
    if (handoff->is_alone)
        return true;
    return handoff->is_served && !awaits_poll(handoff, now_ns) &&
           now_ns >= handoff->leaves_until_ns;
}

void sw_handoff_attend(struct sw_handoff *handoff, uint64_t now_ns)
{
    handoff->polled_ns = handoff->looked_ns = now_ns;
    handoff->is_alone = handoff->is_served = handoff->was_woken = false;
    handoff->doubts_until_ns = handoff->steady_ns = handoff->pace_ns = 0;
}

void sw_handoff_learn(struct sw_handoff *handoff, uint32_t received, uint64_t now_ns)
{
    if (!handoff->was_woken)
        return;
    handoff->was_woken = false;
    if (received) {
        sw_backoff_succeed(&handoff->backoff);
        return;
    }
    const uint64_t rest_ns = sw_backoff_fail(&handoff->backoff, &vain_wakes);
    if (rest_ns)
        handoff->leaves_until_ns = now_ns + rest_ns;
}

static uint64_t look_interval(const struct sw_handoff *handoff)
{
    return handoff->pace_ns ? handoff->pace_ns : SW_HANDOFF_LOOK_NS;
}

uint64_t sw_handoff_yield(struct sw_handoff *handoff, bool watches, uint64_t now_ns)
{
    sw_handoff_learn(handoff, 0, now_ns);
    return now_ns + (watches ? DOUBT_NS : look_interval(handoff));
}

uint64_t sw_handoff_due_ns(const struct sw_handoff *handoff)
{
    return handoff->doubts_until_ns ? handoff->doubts_until_ns
                                    : handoff->looked_ns + look_interval(handoff);
}

bool sw_handoff_is_steady(const struct sw_handoff *handoff)
{
    return handoff->pace_ns && !handoff->doubts_until_ns;
}
