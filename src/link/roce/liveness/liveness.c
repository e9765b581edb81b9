/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/liveness/liveness.h"

#include "base/clock.h"
#include "base/minmax.h"

#define ASK_NS (100 * SW_NS_PER_MS) /* until it is asked again: doubled each time */
#define ASKS_MAX 8u
#define HOPES_MAX 5u               /* of a peer that may be no Sidewire process */
#define MEET_NS (30 * SW_NS_PER_S) /* for a first connection: a peer may be stopped meanwhile */
#define CALL_NS (5 * SW_NS_PER_S)  /* for a connection and the proof */
#define CHECK_NS (3 * SW_NS_PER_S) /* allows for one lost SYN */
/* A process that dies closes its sockets one after the other, and may listen a little longer. */
#define AGAIN_NS (20 * SW_NS_PER_MS)
#define CHECKS_MAX 20u
#define LATE_NS (50 * SW_NS_PER_MS)   /* and some round trips: a process this late hardly runs */
#define TAKEN_NS (300 * SW_NS_PER_MS) /* a connection that stands so long was to a live one */
#define REST_NS SW_NS_PER_S           /* after a failure: doubled each time */
#define RESTS_MAX 6u

void sw_liveness_init(struct sw_liveness *l, bool calls)
{
    *l = (struct sw_liveness){.calls = calls, .due_ns = SW_LIVENESS_NEVER};
}

static enum sw_liveness_step liveness_enter_state(struct sw_liveness *l,
                                                  enum sw_liveness_state state, uint64_t due_ns,
                                                  enum sw_liveness_step step)
{
    l->state = state;
    l->due_ns = due_ns;
    l->pinged_ns = 0;
    l->is_reached = false;
    return step;
}

static enum sw_liveness_step ask_first(struct sw_liveness *l, uint64_t now_ns)
{
    l->tries = 0;
    return liveness_enter_state(l, SW_LIVENESS_ASKING, now_ns + ASK_NS, SW_LIVENESS_ASK);
}

/* It cannot be had for now. */
static enum sw_liveness_step go_idle(struct sw_liveness *l, uint64_t now_ns)
{
    const uint32_t doublings = sw_min_u32(l->tries, RESTS_MAX);
    l->tries = doublings + 1;
    return liveness_enter_state(l, SW_LIVENESS_IDLE,
                                l->calls ? now_ns + (REST_NS << doublings) : SW_LIVENESS_NEVER,
                                SW_LIVENESS_HANG_UP);
}

static enum sw_liveness_step mark_standing(struct sw_liveness *l)
{
    l->tries = 0;
    l->answered_ns = 0;
    l->has_stood = true;
    return liveness_enter_state(l, SW_LIVENESS_UP, SW_LIVENESS_NEVER, SW_LIVENESS_NOTHING);
}

static enum sw_liveness_step hope_once(struct sw_liveness *l, uint64_t now_ns)
{
    if (l->has_hoped)
        return SW_LIVENESS_NOTHING;
    l->has_hoped = true;
    return l->calls ? ask_first(l, now_ns) : SW_LIVENESS_INVITE;
}

static enum sw_liveness_step take_idle(struct sw_liveness *l, enum sw_liveness_event event,
                                       uint64_t now_ns)
{
    const bool rests = l->due_ns != SW_LIVENESS_NEVER;
    if (event == SW_LIVENESS_PROVEN)
        return mark_standing(l);
    if (event == SW_LIVENESS_JOINED)
        return hope_once(l, now_ns);
    if (l->calls && (event == SW_LIVENESS_TIME || (event == SW_LIVENESS_MET && !rests)))
        return ask_first(l, now_ns);
    return SW_LIVENESS_NOTHING;
}

static enum sw_liveness_step take_asking(struct sw_liveness *l, enum sw_liveness_event event,
                                         uint64_t now_ns)
{
    if (event == SW_LIVENESS_TOLD) {
        l->tries = 0;
        return liveness_enter_state(l, SW_LIVENESS_CALLING, now_ns + CALL_NS, SW_LIVENESS_CALL);
    }
    if (event == SW_LIVENESS_MET)
        return SW_LIVENESS_ASK; /* it may have come since the last question */
    if (event != SW_LIVENESS_TIME)
        return SW_LIVENESS_NOTHING;
    if (++l->tries == (l->is_met ? ASKS_MAX : HOPES_MAX))
        return l->is_met ? go_idle(l, now_ns)
                         : liveness_enter_state(l, SW_LIVENESS_IDLE, SW_LIVENESS_NEVER,
                                                SW_LIVENESS_NOTHING);
    l->due_ns = now_ns + (ASK_NS << l->tries);
    return SW_LIVENESS_ASK;
}

static enum sw_liveness_step begin_check(struct sw_liveness *l, uint64_t now_ns)
{
    l->pauses = false;
    return liveness_enter_state(l, SW_LIVENESS_CHECKING, now_ns + CHECK_NS, SW_LIVENESS_CALL);
}

static enum sw_liveness_step take_calling(struct sw_liveness *l, enum sw_liveness_event event,
                                          uint64_t now_ns)
{
    switch (event) {
    case SW_LIVENESS_PROVEN:
        return mark_standing(l);
    case SW_LIVENESS_TAKEN:
        l->is_reached = true; /* it was told of this port by the process itself, just now */
        l->due_ns = now_ns + MEET_NS;
        return SW_LIVENESS_NOTHING;
    case SW_LIVENESS_JOINED:
    case SW_LIVENESS_MET:
    case SW_LIVENESS_TOLD:
    case SW_LIVENESS_GONE:
        return SW_LIVENESS_NOTHING;
    case SW_LIVENESS_REFUSED:
    case SW_LIVENESS_LOST:
    case SW_LIVENESS_TIME:
        l->is_barred = true;
        break;
    case SW_LIVENESS_ENDED:
        if (l->is_reached) /* it has died, or heard us too late */
            return begin_check(l, now_ns);
        break;
    case SW_LIVENESS_FAREWELL:
        break;
    }
    return go_idle(l, now_ns);
}

static enum sw_liveness_step check_again(struct sw_liveness *l, uint64_t now_ns)
{
    if (++l->tries > CHECKS_MAX)
        return go_idle(l, now_ns); /* whoever listens there is another */
    l->pauses = true;
    return liveness_enter_state(l, SW_LIVENESS_CHECKING, now_ns + AGAIN_NS, SW_LIVENESS_HANG_UP);
}

static enum sw_liveness_step take_up(struct sw_liveness *l, enum sw_liveness_event event,
                                     uint64_t now_ns)
{
    if (event == SW_LIVENESS_FAREWELL)
        return liveness_enter_state(l, SW_LIVENESS_IDLE, SW_LIVENESS_NEVER, SW_LIVENESS_HANG_UP);
    if (event == SW_LIVENESS_ENDED || event == SW_LIVENESS_LOST || event == SW_LIVENESS_REFUSED)
        return begin_check(l, now_ns);
    return event == SW_LIVENESS_PROVEN ? mark_standing(l) : SW_LIVENESS_NOTHING;
}

static enum sw_liveness_step take_checking(struct sw_liveness *l, enum sw_liveness_event event,
                                           uint64_t now_ns)
{
    switch (event) {
    case SW_LIVENESS_PROVEN:
        return mark_standing(l);
    case SW_LIVENESS_REFUSED:
        return liveness_enter_state(l, SW_LIVENESS_DEAD, SW_LIVENESS_NEVER, SW_LIVENESS_BURY);
    case SW_LIVENESS_TAKEN:
        if (!l->calls) /* who calls waits for the proof */
            l->due_ns = now_ns + TAKEN_NS;
        return SW_LIVENESS_NOTHING;
    case SW_LIVENESS_ENDED:
        return check_again(l, now_ns);
    case SW_LIVENESS_TIME:
        return l->pauses ? begin_check(l, now_ns) : go_idle(l, now_ns);
    case SW_LIVENESS_FAREWELL:
    case SW_LIVENESS_LOST:
        return go_idle(l, now_ns);
    case SW_LIVENESS_JOINED:
    case SW_LIVENESS_MET:
    case SW_LIVENESS_TOLD:
    case SW_LIVENESS_GONE:
        break;
    }
    return SW_LIVENESS_NOTHING;
}

enum sw_liveness_step sw_liveness_take(struct sw_liveness *l, enum sw_liveness_event event,
                                       uint64_t now_ns)
{
    if (event == SW_LIVENESS_MET && !l->is_met) {
        l->is_met = true;
        l->met_ns = now_ns;
    }
    if (event == SW_LIVENESS_GONE)
        l->is_barred = true;
    switch (l->state) {
    case SW_LIVENESS_IDLE:
        return take_idle(l, event, now_ns);
    case SW_LIVENESS_ASKING:
        return take_asking(l, event, now_ns);
    case SW_LIVENESS_CALLING:
        return take_calling(l, event, now_ns);
    case SW_LIVENESS_UP:
        return take_up(l, event, now_ns);
    case SW_LIVENESS_CHECKING:
        return take_checking(l, event, now_ns);
    case SW_LIVENESS_DEAD:
        break;
    }
    return SW_LIVENESS_NOTHING;
}

bool sw_liveness_is_excused(const struct sw_liveness *l, uint64_t since_ns)
{
    if (l->state == SW_LIVENESS_UP)
        return l->answered_ns < since_ns;
    return l->state == SW_LIVENESS_CHECKING || (l->state == SW_LIVENESS_CALLING && l->is_reached);
}

bool sw_liveness_is_meeting(const struct sw_liveness *l, uint64_t now_ns)
{
    return l->is_met && !l->has_stood && !l->is_barred && now_ns < l->met_ns + MEET_NS;
}

bool sw_liveness_ping(struct sw_liveness *l, uint64_t now_ns)
{
    if (l->state != SW_LIVENESS_UP || l->pinged_ns)
        return false;
    l->pinged_ns = now_ns;
    return true;
}

void sw_liveness_pong(struct sw_liveness *l, uint64_t pinged_ns, uint64_t rtt_ns, uint64_t now_ns)
{
    enum { ROUNDS = 4 };
    if (l->state != SW_LIVENESS_UP || !pinged_ns || l->pinged_ns != pinged_ns)
        return;
    if (now_ns - pinged_ns <= ROUNDS * rtt_ns + LATE_NS)
        l->answered_ns = pinged_ns;
    l->pinged_ns = 0;
}
