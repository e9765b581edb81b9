/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/bind/lane.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/nic/nic.h"
#include "device/queue/qp_impl.h"
#include "device/queue/stand_in.h"
#include "link/direct/bind/account.h"
#include "link/direct/bind/bind.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/step.h"
#include "link/direct/direct.h"
#include "link/direct/process/attach.h"
#include "link/direct/process/block.h"
#include "link/direct/process/peer.h"
#include "link/engine.h"

/* How long a process is looked for that has an SRQ of ours, as far as its number says. */
#define SEARCH_NS (500 * SW_NS_PER_MS)

static atomic_bool lanes_wanted;

/* ---- the initiator's side ---- */

static struct sw_direct_qp *bind_find_lane(const struct sw_direct_qp *d, uint32_t slot)
{
    struct sw_direct_qp *lane = d->xrc.lanes;
    while (lane && lane->peer->slot != slot)
        lane = lane->xrc.next_lane;
    return lane;
}

static struct sw_direct_qp *open_lane(struct sw_qp *qp, struct sw_direct_qp *d, uint32_t srq_num)
{
    struct sw_direct_qp *lane;
    if (sw_bind_open(qp, sw_qpn_slot(srq_num), &lane))
        return NULL;
    lane->remote.srq_num = srq_num;
    lane->xrc.lane_state = SW_LANE_WANTED;
    lane->xrc.next_lane = d->xrc.lanes;
    d->xrc.lanes = lane;
    atomic_store(&lanes_wanted, true);
    sw_engine_kick();
    return lane;
}

static void close_lane(struct sw_direct_qp *lane)
{
    atomic_store(&lane->rx->tenancy, 0); /* by this its stand-in knows */
    if (atomic_load(&lane->peer->state) == SW_PEER_READY)
        sw_peer_ring(lane->peer);
    sw_bind_close(lane);
}

static void remove_lane(struct sw_direct_qp *d, struct sw_direct_qp *lane)
{
    struct sw_direct_qp **at = &d->xrc.lanes;
    while (*at != lane)
        at = &(*at)->xrc.next_lane;
    *at = lane->xrc.next_lane;
    if (d->xrc.busy == lane)
        d->xrc.busy = NULL;
    sw_account_retire(d, lane);
    close_lane(lane);
}

void sw_lane_close_all(struct sw_direct_qp *d)
{
    while (d->xrc.lanes)
        remove_lane(d, d->xrc.lanes);
}

void sw_lane_bury(struct sw_direct_qp *d)
{
    for (struct sw_direct_qp *lane = d->xrc.lanes, *next; lane; lane = next) {
        next = lane->xrc.next_lane;
        if (!lane->send.answers_due && lane != d->xrc.busy &&
            atomic_load(&lane->peer->state) == SW_PEER_DEAD)
            remove_lane(d, lane);
    }
}

void sw_lane_forget_keys(struct sw_direct_qp *d, const struct sw_peer *peer)
{
    for (struct sw_direct_qp *lane = d->xrc.lanes; lane; lane = lane->xrc.next_lane)
        if (lane->peer == peer)
            memset(lane->keys, 0, sizeof(lane->keys));
}

/* Whether the stand-in is still there, in whatever state. */
static bool lane_is_there(const struct sw_qp *qp, const struct sw_direct_qp *lane)
{
    const struct sw_pub_qp *remote = &lane->peer->pub->qps[sw_qpn_index(lane->remote.qpn)];
    return (uint32_t)atomic_load(&remote->bind_word) != IBV_QPS_RESET &&
           SW_PUB_GET(remote->qpn) == lane->remote.qpn && SW_PUB_GET(remote->dest_qpn) == qp->qpn;
}

bool sw_lane_is_lost(const struct sw_qp *qp, const struct sw_direct_qp *lane)
{
    return atomic_load(&lane->peer->state) == SW_PEER_DEAD || !lane_is_there(qp, lane);
}

static bool has_waited(uint64_t *since_ns, uint64_t limit_ns)
{
    uint64_t now_ns = sw_clock_ns();
    if (!*since_ns)
        *since_ns = now_ns;
    return now_ns - *since_ns > limit_ns;
}

/* The SRQ's process is not attached to (yet). A process that is gone has taken its SRQs along. */
static enum sw_step look_for(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_direct_qp *lane)
{
    if (sw_bind_is_being_attached(lane->peer)) {
        sched_yield(); /* to the engine */
        lane->send.unbound_ns = 0;
        return SW_STEP_BLOCKED;
    }
    if (atomic_load(&lane->peer->state) == SW_PEER_DEAD ||
        has_waited(&lane->send.unbound_ns, SEARCH_NS))
        return sw_step_refused_next(qp, d, SW_NAK_INVALID);
    return SW_STEP_BLOCKED;
}

/* The target's own entry counts for its stand-ins, too. */
static void inherit_rights(const struct sw_direct_qp *d, struct sw_direct_qp *lane)
{
    if (lane->remote.access != d->remote.access)
        memset(lane->keys, 0, sizeof(lane->keys));
    lane->remote.access = d->remote.access;
    lane->remote.domain = d->remote.domain;
}

static enum sw_step enter_lane(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_direct_qp *lane,
                               uint32_t srq_num)
{
    if (atomic_load_explicit(&lane->peer->state, memory_order_acquire) != SW_PEER_READY)
        return look_for(qp, d, lane);
    inherit_rights(d, lane);
    if (!sw_bind_name_srq(lane, srq_num))
        return sw_step_refused_next(qp, d, SW_NAK_INVALID);
    switch ((enum sw_lane_state)lane->xrc.lane_state) {
    case SW_LANE_NONE:
    case SW_LANE_WANTED:
    case SW_LANE_ASKED:
        return SW_STEP_BLOCKED;
    case SW_LANE_REFUSED:
        return sw_step_refused(d, SW_NAK_OPERATIONAL);
    case SW_LANE_OPEN:
        break;
    }
    if (sw_bind_enter(qp, lane)) {
        lane->send.unbound_ns = 0;
        inherit_rights(d, lane); /* binding has read the stand-in's entry */
        return SW_STEP_DONE;
    }
    if (sw_lane_is_lost(qp, lane)) /* the SRQ was there a moment ago: look again */
        remove_lane(d, lane);
    else if (has_waited(&lane->send.unbound_ns, SEARCH_NS))
        return sw_step_refused(d, SW_UNREACHABLE);
    return SW_STEP_BLOCKED;
}

enum sw_step sw_lane_enter(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_direct_qp **via)
{
    sw_lock_assert_held(&qp->lock);
    uint32_t srq_num = sw_sq_at(&qp->sq, qp->sq.next)->srq_num, slot = sw_qpn_slot(srq_num);
    struct sw_direct_qp *wanted = d;
    if (!sw_lane_leads_to(d, srq_num)) {
        if (slot < 1 || slot > SW_SLOT_MAX)
            return sw_step_refused_next(qp, d, SW_NAK_INVALID);
        wanted = bind_find_lane(d, slot);
        if (!wanted)
            wanted = open_lane(qp, d, srq_num);
        if (!wanted)
            return sw_step_local_error(d, IBV_WC_LOC_QP_OP_ERR);
    }
    if (wanted != sw_lane_busy(d) && sw_lane_busy(d)->send.answers_due)
        return SW_STEP_BLOCKED;
    d->xrc.busy = wanted == d ? NULL : wanted;
    enum sw_step step = wanted == d ? SW_STEP_DONE : enter_lane(qp, d, wanted, srq_num);
    if (step == SW_STEP_DONE)
        *via = wanted;
    return step;
}

/* ---- the engine of the initiator's process ---- */

/* Asks for the lanes of one initiator. One within this process is handed back instead, in *own. */
static bool ask_for_lanes(const struct sw_qp *qp, const struct sw_direct_qp *d, struct sw_join *own)
{
    for (struct sw_direct_qp *lane = d->xrc.lanes; lane; lane = lane->xrc.next_lane) {
        int state = atomic_load(&lane->peer->state);
        if (lane->xrc.lane_state != SW_LANE_WANTED || state == SW_PEER_DEAD)
            continue;
        struct sw_join join = {.initiator = qp->qpn,
                               .target = qp->dest_qpn,
                               .srq_num = lane->remote.srq_num,
                               .block = lane->rx_index,
                               .token = lane->life,
                               .min_rnr_timer = SW_PUB_GET(d->remote.entry->min_rnr_timer)};
        if (lane->peer->self) {
            lane->xrc.lane_state = SW_LANE_ASKED;
            *own = join;
            return true;
        }
        if (state == SW_PEER_READY && sw_attach_join(lane->peer, &join))
            lane->xrc.lane_state = SW_LANE_ASKED;
        else
            atomic_store(&lanes_wanted, true); /* again, when the peer is there */
    }
    return false;
}

/* True if it was for this process itself: *own is to be served. */
static bool ask_all(struct sw_join *own)
{
    bool found = false;
    pthread_mutex_lock(&sw_nic.lock);
    for (uint32_t i = sw_nic_first_qp(); i < SW_MAX_QP && !found; i = sw_nic_next_qp(i)) {
        struct sw_qp *qp = sw_nic.qps[i];
        if (qp->type != IBV_QPT_XRC_SEND)
            continue;
        sw_lock_acquire(&qp->lock);
        struct sw_direct_qp *d = sw_direct_of(qp);
        if (d)
            found = ask_for_lanes(qp, d, own);
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return found;
}

void sw_lane_joined(const struct sw_join *join)
{
    pthread_mutex_lock(&sw_nic.lock);
    struct sw_qp *qp = sw_qp_find(join->initiator);
    if (qp && qp->type == IBV_QPT_XRC_SEND) {
        sw_lock_acquire(&qp->lock);
        struct sw_direct_qp *d = sw_direct_of(qp);
        struct sw_direct_qp *lane = d ? d->xrc.lanes : NULL;
        while (lane && lane->life != join->token)
            lane = lane->xrc.next_lane;
        if (lane && lane->xrc.lane_state == SW_LANE_ASKED) {
            lane->remote.qpn = join->stand_in;
            lane->xrc.lane_state = join->stand_in ? SW_LANE_OPEN : SW_LANE_REFUSED;
            qp->link->progress(qp);
        }
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
}

/* ---- the engine of the SRQ's process ---- */

static int connect_stand_in(struct sw_qp *qp, void *arg)
{
    const struct sw_join *join = arg;
    struct sw_direct_qp *d;
    int rc = sw_bind_open(qp, sw_qpn_slot(join->initiator), &d);
    if (rc)
        return rc;
    d->remote.qpn = join->initiator;
    d->xrc.lent_block = join->block;
    d->xrc.lent_token = join->token;
    qp->link = &sw_direct_qp_ops;
    sw_bind_begin(qp, d);
    return 0;
}

void sw_lane_serve(struct sw_join *join)
{
    const struct sw_stand_in init = {.srq_num = join->srq_num,
                                     .target_qpn = join->target,
                                     .initiator_qpn = join->initiator,
                                     .min_rnr_timer = join->min_rnr_timer & 31};
    join->stand_in = 0;
    if (join->block >= SW_INBOX_BLOCKS || !join->token)
        return;
    uint32_t qpn;
    int rc = sw_stand_in_create(&init, connect_stand_in, join, &qpn);
    if (rc)
        sw_info("no QP to stand in for XRC target 0x%x here: %s", join->target, strerror(-rc));
    else
        join->stand_in = qpn;
}

/* Its initiator has let go of it, or died and was waited for, or it has failed. */
static bool lane_is_gone(struct sw_qp *qp)
{
    const struct sw_direct_qp *d = sw_direct_of(qp);
    if (!d || d->death_handled)
        return true;
    if (atomic_load(&d->peer->state) != SW_PEER_READY)
        return false;
    return d->xrc.lent_block >= d->peer->inbox_blocks ||
           sw_block_reader(sw_inbox_block(d->peer->inbox, d->xrc.lent_block)) != d->xrc.lent_token;
}

void sw_lane_step(void)
{
    struct sw_join own;
    sw_stand_in_reap(lane_is_gone);
    while (atomic_exchange(&lanes_wanted, false) && ask_all(&own)) {
        sw_lane_serve(&own);
        sw_lane_joined(&own);
        atomic_store(&lanes_wanted, true); /* there may be more */
    }
}
