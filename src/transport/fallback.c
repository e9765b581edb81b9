/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/fallback.h"

/* Loss alone does not look like that: of twenty packets of a hundred lost, each way, four in a row
 * are unanswered once in sixty times, and even then one of them has mostly come to the peer, which
 * refuses the call. Retries are not given up before a second (link/roce/qp). */
#define TIMEOUTS 4u
#define MISSED_NS 200000000ull

static enum sw_fallback_step fallback_begin_call(struct sw_fallback *f)
{
    f->state = SW_FALLBACK_CALLING;
    return SW_FALLBACK_CALL;
}

static enum sw_fallback_step miss_answer(struct sw_fallback *f, uint64_t missed_ns)
{
    f->timeouts++;
    if (f->timeouts < TIMEOUTS || missed_ns < MISSED_NS)
        return SW_FALLBACK_NOTHING;
    f->has_missed = true;
    return f->state == SW_FALLBACK_BY_PACKETS ? fallback_begin_call(f) : SW_FALLBACK_NOTHING;
}

static enum sw_fallback_step fallback_take_packet(struct sw_fallback *f)
{
    if (f->state == SW_FALLBACK_ASKED || f->state == SW_FALLBACK_MOVED)
        return SW_FALLBACK_REFUSE;
    f->is_heard = true;
    f->state = SW_FALLBACK_BY_PACKETS;
    return SW_FALLBACK_NOTHING;
}

static enum sw_fallback_step move_over(struct sw_fallback *f)
{
    f->state = SW_FALLBACK_MOVED;
    return SW_FALLBACK_MOVE;
}

enum sw_fallback_step sw_fallback_take(struct sw_fallback *f, enum sw_fallback_event event,
                                       uint64_t missed_ns)
{
    const bool is_asked = f->state == SW_FALLBACK_ASKED;
    if (event == SW_FALLBACK_PACKET)
        return fallback_take_packet(f);
    if (f->is_heard || f->state == SW_FALLBACK_MOVED) /* neither is left any more */
        return event == SW_FALLBACK_UNANSWERED || event == SW_FALLBACK_KNOWN ||
                       event == SW_FALLBACK_MISSED
                   ? SW_FALLBACK_NOTHING
                   : SW_FALLBACK_REFUSE;
    switch (event) {
    case SW_FALLBACK_UNANSWERED:
        return miss_answer(f, missed_ns);
    case SW_FALLBACK_KNOWN:
        return f->state == SW_FALLBACK_BY_PACKETS ? fallback_begin_call(f) : SW_FALLBACK_NOTHING;
    case SW_FALLBACK_REQUEST:
        if (f->state != SW_FALLBACK_CALLING)
            return SW_FALLBACK_REFUSE;
        f->state = SW_FALLBACK_ASKED;
        return SW_FALLBACK_NOTHING;
    case SW_FALLBACK_MISSED:
        if (is_asked)
            f->state = SW_FALLBACK_CALLING;
        return SW_FALLBACK_NOTHING;
    case SW_FALLBACK_TAKEN:
        return is_asked ? move_over(f) : SW_FALLBACK_REFUSE;
    case SW_FALLBACK_CALLED:
        return is_asked && f->is_lower ? SW_FALLBACK_REFUSE : move_over(f);
    case SW_FALLBACK_PACKET:
        break;
    }
    return SW_FALLBACK_NOTHING;
}
