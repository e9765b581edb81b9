/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A sleeper may miss nothing that was written while it went to sleep. So a peer is told, then asked
 * what it has written; what is not there yet is under way. A peer that was asked, and has not rung
 * since, need not be told again.
 */
#include "collectives/comm/wait.h"

#include <sched.h>
#include <string.h>
#include <sys/epoll.h>

#include "collectives/comm/agreement.h"
#include "collectives/comm/door.h"
#include "collectives/comm/dump.h"
#include "collectives/comm/failure.h"
#include "collectives/comm/late.h"
#include "collectives/comm/page.h"
#include "collectives/comm/peer.h"
#include "collectives/comm/request.h"
#include "collectives/comm/send.h"
#include "collectives/comm/transfer.h"
#include "collectives/comm/watchdog.h"
#include "common/base/minmax.h"
#include "common/time/clock.h"
#include "common/time/deadline.h"
#include "common/time/rest.h"

enum {
    LOOKS = 32,           /* at memory between two looks at the clock and at completions */
    LOOK_AROUND_US = 500, /* between two looks at descriptors */
    SLEEP_MAX_MS = 1000,
    UNDER_WAY_MS = 1, /* a peer that was stopped in the midst of a WRITE says no more */
    EVENTS = 16,
};

/* ---- descriptors ---- */

static void wait_take_event(struct sw_coll *coll, void *source)
{
    if (source == &coll->queue)
        mover_queue_drain(&coll->queue);
    else if (source == &coll->events)
        coll_door_events(coll);
    else if (source == &coll->timer_fd)
        coll_door_tick(coll);
    else if (source == &coll->wake)
        coll_wake_drain(&coll->wake);
    else
        coll_peer_events(source);
}

void coll_take_events(struct sw_coll *coll, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    const int count = epoll_wait(coll->epoll_fd, events, EVENTS, timeout_ms);
    for (int i = 0; i < count; i++)
        wait_take_event(coll, events[i].data.ptr);
    const uint64_t now_ns = mover_now_ns();
    for (uint32_t rank = 0; !coll->failure.is_over && rank < coll->site.size; rank++)
        if (coll_is_other(coll, rank))
            coll_peer_tick(&coll->peers[rank], now_ns);
    coll->looked_ns = now_ns;
    coll_dump_look(coll);
}

static void look_around(struct sw_coll *coll, uint64_t now_ns)
{
    coll_send_poll(coll);
    if (now_ns - coll->looked_ns >= LOOK_AROUND_US * NS_PER_US)
        coll_take_events(coll, 0);
    if (coll_failure_is_near(coll)) {
        coll_requests_go(coll);
        coll_transfers_go(coll);
        coll_failure_look(coll);
    }
    coll_watchdog_look(coll, now_ns);
}

void coll_go_on(struct sw_coll *coll)
{
    coll->completions_seen = coll->completions;
    coll_requests_go(coll);
    coll_transfers_go(coll);
    if (coll->failure.is_set)
        coll_failure_end(coll);
}

void coll_look(struct sw_coll *coll)
{
    const uint64_t now_ns = mover_now_ns();
    look_around(coll, now_ns);
    coll_go_on(coll);
    coll_late_show(coll);
    coll_page_refresh(coll, now_ns, true);
}

/* ---- sleep ---- */

/* Goes a step with that peer. True: it may be slept, as far as it is concerned. */
static bool ask_before_sleep(struct coll_peer *peer, int *longest_ms)
{
    switch (peer->stage) {
    case COLL_AWAKE:
        coll_send_tell(peer);
        return peer->stage == COLL_AWAKE; /* its queue is full: a completion comes */
    case COLL_UNDER_WAY:
        if (coll_send_has_arrived(peer)) {
            peer->stage = COLL_SURE;
            return false;
        }
        *longest_ms = UNDER_WAY_MS;
        return true;
    case COLL_TELLING:
    case COLL_ASKING:
    case COLL_SURE:
        break;
    }
    return true;
}

/* The operation goes on only when all that are absent have come. So a doorbell of one of them is
 * enough, and the next one is asked for when that has come. NULL: completions wake, or events. */
static struct coll_peer *awaited_peer(struct sw_coll *coll)
{
    const uint32_t size = coll->site.size;
    bool is_absent[SW_COLL_RANKS_MAX];
    if (!coll->current || !coll_machine_absent(&coll->machine, is_absent))
        return NULL;
    for (uint32_t i = 0; i < size; i++) {
        const uint32_t rank = (coll->watched + i) % size;
        if (is_absent[rank] && coll_is_other(coll, rank) &&
            coll->peers[rank].state == COLL_PEER_UP) {
            coll->watched = rank;
            return &coll->peers[rank];
        }
    }
    return NULL;
}

/* Nothing has come for a second. A peer whose host has vanished is known by a request alone, so
 * those that are absent are asked by turns. */
static void probe_next(struct sw_coll *coll, struct coll_peer *peer)
{
    if (peer->stage == COLL_SURE)
        peer->stage = COLL_AWAKE;
    coll->watched = (peer->rank + 1) % coll->site.size;
}

/* By receives, and by a caller that listens: a bool for each rank. How many. */
static uint32_t find_awaited_pairs(const struct sw_coll *coll, bool *is_absent)
{
    if (list_is_empty(&coll->pairs.busy) && !coll->listened_count) {
        memset(is_absent, 0, coll->site.size * sizeof(*is_absent));
        return 0;
    }
    uint32_t count = coll_transfers_absent(coll, is_absent);
    for (uint32_t rank = 0; coll->listened_count && rank < coll->site.size; rank++)
        if (coll->peers[rank].is_listened && coll_is_other(coll, rank) && !is_absent[rank]) {
            is_absent[rank] = true;
            count++;
        }
    return count;
}

/* Each message between two ranks goes on for itself, so all that something is awaited from ring. */
static bool ask_pairs_before_sleep(struct sw_coll *coll, int *longest_ms)
{
    bool is_absent[SW_COLL_RANKS_MAX], is_calm = true;
    if (!find_awaited_pairs(coll, is_absent))
        return true;
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (is_absent[rank] && coll->peers[rank].state == COLL_PEER_UP)
            is_calm &= ask_before_sleep(&coll->peers[rank], longest_ms);
    return is_calm;
}

static void probe_pairs(struct sw_coll *coll)
{
    bool is_absent[SW_COLL_RANKS_MAX];
    find_awaited_pairs(coll, is_absent);
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (is_absent[rank] && coll->peers[rank].stage == COLL_SURE)
            coll->peers[rank].stage = COLL_AWAKE;
}

/* The operations were looked at after the last completion has come: one of them may have told that
 * all is there. */
static void wait_go_to_sleep(struct sw_coll *coll, const struct coll_waiting *waiting)
{
    const uint64_t now_ns = waiting->now_ns;
    int longest_ms = SLEEP_MAX_MS;
    uint64_t wake_ns = coll_watchdog_wake_ns(coll);
    struct coll_peer *peer = awaited_peer(coll);
    if (!mover_queue_arm(&coll->queue) || (peer && !ask_before_sleep(peer, &longest_ms)) ||
        !ask_pairs_before_sleep(coll, &longest_ms))
        return;
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (coll->peers[rank].retry_ns)
            wake_ns = mover_min_u64(wake_ns, coll->peers[rank].retry_ns);
    if (waiting->until_ns)
        wake_ns = mover_min_u64(wake_ns, waiting->until_ns);
    coll_page_refresh(coll, now_ns, true);
    if (waiting->is_wakeable && !coll_wake_sleep_begin(&coll->wake))
        return;
    coll_take_events(coll, mover_ms_until(wake_ns, now_ns, longest_ms));
    if (waiting->is_wakeable)
        coll_wake_sleep_end(&coll->wake);
    if (coll->looked_ns - now_ns < (SLEEP_MAX_MS - 1) * NS_PER_MS)
        return;
    if (peer)
        probe_next(coll, peer);
    probe_pairs(coll);
}

void coll_wait_turn(struct sw_coll *coll, struct coll_waiting *waiting)
{
    if (!waiting->is_tired && ++waiting->looks % LOOKS) {
        if (coll->must_yield)
            sched_yield();
        else
            mover_rest_shortly();
        return;
    }
    const uint64_t now_ns = waiting->now_ns = mover_now_ns();
    if (!waiting->spin_until_ns || waiting->bells != coll->bells)
        waiting->spin_until_ns = now_ns + coll->options.spin_us * NS_PER_US;
    waiting->bells = coll->bells;
    waiting->is_tired = now_ns >= waiting->spin_until_ns;
    look_around(coll, now_ns);
    coll_late_show(coll);
    coll_page_refresh(coll, now_ns, false);
    if (!waiting->is_tired || coll->completions != coll->completions_seen)
        return;
    if (coll->failure.is_agreeing)
        coll_agreement_nap(coll);
    else if (!coll->failure.is_set)
        wait_go_to_sleep(coll, waiting);
}
