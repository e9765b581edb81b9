/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/traffic.h"

#include <stdatomic.h>

#include "device/netdev.h"
#include "device/nic.h"
#include "device/qp_impl.h"

/* Per device: of connections that ended. */
static struct {
    _Atomic uint64_t sent_bytes, sent_packets, received_bytes, received_packets;
} kept[SW_NETDEV_MAX];

static int index_of(struct sw_netdev *dev)
{
    struct sw_netdev_info info;
    sw_netdev_read(dev, &info);
    return info.index;
}

void sw_traffic_keep(struct sw_netdev *dev, const struct sw_traffic *part)
{
    int i = index_of(dev);
    atomic_fetch_add(&kept[i].sent_bytes, part->sent_bytes);
    atomic_fetch_add(&kept[i].sent_packets, part->sent_packets);
    atomic_fetch_add(&kept[i].received_bytes, part->received_bytes);
    atomic_fetch_add(&kept[i].received_packets, part->received_packets);
}

void sw_traffic_read(struct sw_netdev *dev, struct sw_traffic *out)
{
    struct sw_traffic sum = {0};
    pthread_mutex_lock(&sw_nic.lock);
    for (uint32_t i = 0, seen = 0; i < SW_MAX_QP && seen < sw_nic.qp_count; i++) {
        struct sw_qp *qp = sw_nic.qps[i];
        if (!qp)
            continue;
        seen++;
        if (qp->ctx->netdev != dev)
            continue;
        struct sw_traffic part = {0};
        sw_lock_acquire(&qp->lock);
        qp->link->traffic(qp, &part);
        sw_lock_release(&qp->lock);
        sum.sent_bytes += part.sent_bytes;
        sum.sent_packets += part.sent_packets;
        sum.received_bytes += part.received_bytes;
        sum.received_packets += part.received_packets;
    }
    pthread_mutex_unlock(&sw_nic.lock);
    int i = index_of(dev);
    sum.sent_bytes += atomic_load(&kept[i].sent_bytes);
    sum.sent_packets += atomic_load(&kept[i].sent_packets);
    sum.received_bytes += atomic_load(&kept[i].received_bytes);
    sum.received_packets += atomic_load(&kept[i].received_packets);
    *out = sum;
}
