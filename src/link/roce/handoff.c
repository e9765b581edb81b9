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

bool sw_handoff_is_served(uint64_t served_ns, uint64_t now_ns)
{
    return now_ns < served_ns + SERVED_NS;
}

bool sw_receiver_is_engine(enum sw_receiver receiver)
{
    return receiver == SW_RECEIVER_ENGINE || receiver == SW_RECEIVER_BOTH;
}

/* ---- who receives ---- */

/* A program that attends polls, as it were, though it may be asleep. */
static bool is_waiter_there(const struct sw_handoff_seen *seen, uint64_t now_ns)
{
    return !seen->sleeps && now_ns < seen->attended_until_ns;
}

static enum sw_receiver leave_to_waiter(struct sw_handoff *handoff, uint64_t now_ns)
{
    handoff->polled_ns = handoff->looked_ns = now_ns;
    handoff->was_woken = false;
    handoff->doubts_until_ns = handoff->steady_ns = handoff->pace_ns = 0;
    return SW_RECEIVER_WAITER;
}

static void note_poll(struct sw_handoff *handoff, uint64_t polled_ns, uint64_t now_ns)
{
    if (polled_ns == handoff->polled_ns)
        return;
    handoff->polled_ns = polled_ns;
    /* Between two looks that are far from each other it may have stopped long ago. */
    handoff->looked_ns = handoff->pace_ns ? sw_min_u64(polled_ns, now_ns) : now_ns;
}

static bool is_nobody_there(const struct sw_handoff *handoff, bool sleeps, uint64_t now_ns)
{
    return now_ns - handoff->looked_ns >= SW_HANDOFF_LOOK_NS ||
           (sleeps && now_ns >= handoff->leaves_until_ns);
}

static void forget_steadiness(struct sw_handoff *handoff)
{
    handoff->steady_ns = handoff->pace_ns = 0;
}

/* A pause ends what was steady. Only a program that is left alone with its packets can be. */
static enum sw_receiver leave_to_poller(struct sw_handoff *handoff, bool sleeps, uint64_t now_ns)
{
    handoff->doubts_until_ns = 0;
    handoff->pace_ns = 0;
    if (sleeps || now_ns >= handoff->polled_ns + STEADY_NS) {
        handoff->steady_ns = 0;
        return SW_RECEIVER_POLLER;
    }
    if (!handoff->steady_ns)
        handoff->steady_ns = now_ns;
    const uint64_t pace_ns = (now_ns - handoff->steady_ns) / STEADY_PART;
    if (pace_ns <= SW_HANDOFF_LOOK_NS)
        return SW_RECEIVER_POLLER;
    handoff->pace_ns = sw_min_u64(pace_ns, PACE_MAX_NS);
    return SW_RECEIVER_STEADY;
}

/* Where peers reach for memory: whether the program takes in by itself what wakes the engine, which
 * is to be seen. */
static enum sw_receiver share_with_program(struct sw_handoff *handoff, uint64_t now_ns)
{
    const bool polls = now_ns < handoff->polled_ns + POLLING_NS;
    forget_steadiness(handoff);
    if (handoff->doubts_until_ns == 0 && handoff->was_woken && polls)
        handoff->doubts_until_ns = now_ns + DOUBT_NS;
    if (now_ns < handoff->doubts_until_ns)
        return SW_RECEIVER_DOUBT;
    if (handoff->doubts_until_ns && polls) {
        handoff->was_woken = false;
        handoff->leaves_until_ns = now_ns + sw_backoff_rest(&handoff->backoff, &vain_wakes);
    }
    handoff->doubts_until_ns = 0;
    return now_ns < handoff->leaves_until_ns ? SW_RECEIVER_LEFT : SW_RECEIVER_BOTH;
}

static enum sw_receiver leave_to_engine(struct sw_handoff *handoff)
{
    handoff->doubts_until_ns = 0;
    forget_steadiness(handoff);
    return SW_RECEIVER_ENGINE;
}

enum sw_receiver sw_handoff_look(struct sw_handoff *handoff, const struct sw_handoff_seen *seen,
                                 uint64_t now_ns)
{
    if (is_waiter_there(seen, now_ns)) {
        handoff->receiver = leave_to_waiter(handoff, now_ns);
        return handoff->receiver;
    }
    note_poll(handoff, seen->polled_ns, now_ns);
    if (is_nobody_there(handoff, seen->sleeps, now_ns))
        handoff->receiver = leave_to_engine(handoff);
    else if (sw_handoff_is_served(seen->served_ns, now_ns))
        handoff->receiver = share_with_program(handoff, now_ns);
    else
        handoff->receiver = leave_to_poller(handoff, seen->sleeps, now_ns);
    return handoff->receiver;
}

/* ---- what the engine does ---- */

enum sw_keep_off sw_handoff_keep_off(const struct sw_handoff *handoff,
                                     const struct sw_handoff_seen *seen, uint64_t now_ns)
{
    if (handoff->receiver == SW_RECEIVER_WAITER || seen->sleeps || seen->serves_long ||
        !sw_handoff_is_served(seen->served_ns, now_ns))
        return SW_KEEP_OFF_NONE;
    return handoff->receiver != SW_RECEIVER_ENGINE || now_ns < seen->posted_ns + SW_HANDOFF_LOOK_NS
               ? SW_KEEP_OFF_PROGRAM
               : SW_KEEP_OFF_AS_BEFORE;
}

enum sw_intake sw_handoff_intake(const struct sw_handoff *handoff, bool is_due, bool expects_more)
{
    if (!is_due && !sw_receiver_is_engine(handoff->receiver))
        return SW_INTAKE_NOTHING;
    return !is_due && !handoff->was_woken && expects_more ? SW_INTAKE_HOT : SW_INTAKE_ALL;
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
    return handoff->receiver == SW_RECEIVER_STEADY ? handoff->pace_ns : SW_HANDOFF_LOOK_NS;
}

uint64_t sw_handoff_yield(struct sw_handoff *handoff, uint64_t now_ns)
{
    sw_handoff_learn(handoff, 0, now_ns);
    return now_ns + (sw_receiver_is_engine(handoff->receiver) ? DOUBT_NS : look_interval(handoff));
}

uint64_t sw_handoff_due_ns(const struct sw_handoff *handoff, uint64_t acks_due_ns)
{
    switch (handoff->receiver) {
    case SW_RECEIVER_ENGINE:
        return acks_due_ns;
    case SW_RECEIVER_DOUBT:
        return handoff->doubts_until_ns;
    case SW_RECEIVER_POLLER:
    case SW_RECEIVER_STEADY:
    case SW_RECEIVER_WAITER:
    case SW_RECEIVER_BOTH:
    case SW_RECEIVER_LEFT:
        break;
    }
    return handoff->looked_ns + look_interval(handoff);
}
