/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/direct/bind/death.h"

#include "base/clock.h"
#include "base/minmax.h"
#include "device/nic/nic.h"
#include "device/queue/qp_impl.h"
#include "link/death.h"
#include "link/direct/bind/lane.h"
#include "link/direct/datagram/channel.h"
#include "link/direct/datagram/receive.h"
#include "link/direct/direct.h"
#include "link/direct/process/block.h"
#include "link/direct/process/state.h"
#include "link/engine.h"

/* How long a QP whose peer process died without destroying its own QP waits before its receives are
 * flushed: what the peer sent last is delivered first, and a program that is about to finish may do
 * so. */
#define DEATH_GRACE_NS (100 * SW_NS_PER_MS)
#define LOCKED_NS (200 * SW_NS_PER_US) /* until a queue pair that somebody has is tried again */

/* The peer's process is gone: whether it had taken its QP down before. One whose tables were never
 * seen may have, unless something waits for it. */
static bool left_orderly(const struct sw_qp *qp, const struct sw_direct_qp *d)
{
    if (!d->peer || !d->peer->pub)
        return qp->sq.head == qp->sq.tail;
    const struct sw_pub_qp *remote = &d->peer->pub->qps[sw_qpn_index(qp->dest_qpn)];
    uint32_t state = (uint32_t)atomic_load(&remote->bind_word);
    return !sw_bind_is_connected(state) || SW_PUB_GET(remote->dest_qpn) != qp->shown_qpn;
}

void sw_bind_bury(struct sw_qp *qp, struct sw_direct_qp *d)
{
    sw_lock_assert_held(&qp->lock);
    d->death_handled = true;
    const bool left = left_orderly(qp, d);
    if (left && qp->sq.head == qp->sq.tail)
        return;
    for (uint32_t i = 0; i < SW_REQUEST_SLOTS && sw_direct_drive(qp); i++) {
    } /* what it sent last */
    if (left || qp->state == IBV_QPS_ERR || qp->link_state != d || d->rules[SW_UNREACHABLE].lost)
        return; /* unreliable: its receives stay posted, and what it sends is lost */
    sw_death_end(qp, d->rules[SW_UNREACHABLE].requester);
}

static uint64_t bury_qps(uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    pthread_mutex_lock(&sw_nic.lock);
    for (uint32_t i = sw_nic_first_qp(); i < SW_MAX_QP; i = sw_nic_next_qp(i)) {
        struct sw_qp *qp = sw_nic.qps[i];
        if (!sw_lock_try(&qp->lock)) { /* who has it may wait for the engine, or move much */
            next_ns = sw_min_u64(next_ns, now_ns + LOCKED_NS);
            continue;
        }
        struct sw_direct_qp *d = sw_direct_of(qp);
        if (d)
            sw_lane_bury(d);
        bool waits = qp->sq.head != qp->sq.tail; /* maybe for the second time: it may have been left
                                                    in peace, and then have sent again */
        if (d && sw_bind_is_gone(d) && (!d->death_handled || waits)) {
            if (!d->gone_ns)
                d->gone_ns = now_ns;
            if (waits || now_ns - d->gone_ns >= DEATH_GRACE_NS) {
                sw_bind_bury(qp, d);
            } else if (d->gone_ns + DEATH_GRACE_NS < next_ns) {
                next_ns = d->gone_ns + DEATH_GRACE_NS;
            }
        }
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return next_ns;
}

static void death_free_unused(void)
{
    struct sw_peer *dead_peers = NULL;
    pthread_mutex_lock(&sw_direct.lock);
    for (struct sw_peer **at = &sw_direct.peers; *at;) {
        struct sw_peer *peer = *at;
        if (sw_peer_unused(peer)) {
            *at = peer->next;
            peer->next = dead_peers;
            dead_peers = peer;
        } else {
            at = &peer->next;
        }
    }
    for (struct sw_inbox **at = &sw_direct.inboxes; *at;) {
        struct sw_inbox *inbox = *at;
        if (sw_inbox_unlink_unused(at)) {
            sw_inbox_free(inbox);
        } else {
            at = &inbox->next;
        }
    }
    pthread_mutex_unlock(&sw_direct.lock);
    while (dead_peers) {
        struct sw_peer *peer = dead_peers;
        dead_peers = peer->next;
        /* close() alone leaves it in the epoll if a child that was just forked has it, too. */
        if (peer->socket >= 0)
            sw_engine_unwatch(peer->socket);
        sw_peer_free(peer);
    }
}

uint64_t sw_bind_reap(uint64_t now_ns)
{
    bool any = false;
    pthread_mutex_lock(&sw_direct.lock);
    for (struct sw_peer *peer = sw_direct.peers; peer && !any; peer = peer->next)
        any = atomic_load(&peer->state) == SW_PEER_DEAD || sw_peer_unused(peer);
    for (struct sw_inbox *inbox = sw_direct.inboxes; inbox && !any; inbox = inbox->next)
        any = atomic_load(&inbox->dead) || sw_inbox_unused(inbox);
    pthread_mutex_unlock(&sw_direct.lock);
    if (!any)
        return UINT64_MAX;
    uint64_t next_ns = bury_qps(now_ns);
    uint64_t datagrams_ns = sw_datagram_bury(now_ns);
    sw_channel_forget_dead();
    death_free_unused();
    return sw_min_u64(datagrams_ns, next_ns);
}
