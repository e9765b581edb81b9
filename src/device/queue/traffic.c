/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/traffic.h"

#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "device/nic/netdev.h"
#include "device/nic/nic.h"
#include "device/queue/qp_impl.h"

/* How long to wait for QPs that somebody is at work on, all together. A program has its lock from
 * ibv_wr_start() to ibv_wr_complete(), for as long as it likes; perhaps it is the one that reads.
 */
#define PATIENCE_NS (20 * SW_NS_PER_MS)

static struct sw_traffic kept[SW_NETDEV_MAX]; /* of QPs that are gone; nic.lock */

static int traffic_index_of(struct sw_netdev *dev)
{
    struct sw_netdev_info info;
    sw_netdev_read(dev, &info);
    return info.index;
}

void sw_traffic_add(struct sw_traffic *sum, const struct sw_traffic *part)
{
    sum->sent_bytes += part->sent_bytes;
    sum->sent_packets += part->sent_packets;
    sum->received_bytes += part->received_bytes;
    sum->received_packets += part->received_packets;
    sum->sent_multicast += part->sent_multicast;
    sum->received_multicast += part->received_multicast;
}

/* A poller takes the lock again and again: it is asked to let us pass. */
static bool lock_until(struct sw_lock *lock, uint64_t deadline_ns)
{
    if (sw_lock_try(lock))
        return true;
    atomic_fetch_add(&lock->wanted, 1);
    bool locked;
    while (!(locked = !atomic_exchange_explicit(&lock->held, 1, memory_order_acquire)) &&
           sw_clock_ns() < deadline_ns)
        sched_yield();
    atomic_fetch_sub(&lock->wanted, 1);
    return locked;
}

/* Brings qp->moved_seen up to date, if the QP can be had. */
static void traffic_look_at(struct sw_qp *qp, uint64_t deadline_ns)
{
    if (!lock_until(&qp->lock, deadline_ns))
        return;
    struct sw_traffic part = {0};
    qp->link->traffic(qp, &part);
    sw_traffic_add(&part, &qp->moved);
    sw_lock_release(&qp->lock);
    qp->moved_seen = part;
}

void sw_traffic_keep(const struct sw_qp *qp)
{
    sw_mutex_assert_held(&sw_nic.lock);
    sw_traffic_add(&kept[traffic_index_of(qp->ctx->netdev)], &qp->moved);
}

void sw_traffic_read(struct sw_netdev *dev, struct sw_traffic *out)
{
    uint64_t deadline_ns = sw_clock_ns() + PATIENCE_NS;
    pthread_mutex_lock(&sw_nic.lock);
    *out = kept[traffic_index_of(dev)];
    for (uint32_t i = sw_nic_first_qp(); i < SW_MAX_QP; i = sw_nic_next_qp(i)) {
        struct sw_qp *qp = sw_nic.qps[i];
        if (qp->ctx->netdev != dev)
            continue;
        traffic_look_at(qp, deadline_ns);
        sw_traffic_add(out, &qp->moved_seen);
    }
    pthread_mutex_unlock(&sw_nic.lock);
}

void sw_traffic_fork_child(void)
{
    memset(kept, 0, sizeof(kept));
}
