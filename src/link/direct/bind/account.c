/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/bind/account.h"

#include "link/direct/bind/connection.h"
#include "link/direct/process/block.h"

static uint64_t value_of(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void account_add_sums(const struct sw_direct_qp *d, struct sw_traffic *out)
{
    out->sent_bytes += d->send.sums[SW_MOVED_OUT].bytes;
    out->sent_packets += d->send.sums[SW_MOVED_OUT].packets;
    out->received_bytes += d->send.sums[SW_MOVED_IN].bytes;
    out->received_packets += d->send.sums[SW_MOVED_IN].packets;
    if (!d->rx)
        return;
    const struct sw_moved *theirs = d->rx->moved;
    out->sent_bytes += value_of(&theirs[SW_MOVED_IN].bytes);
    out->sent_packets += value_of(&theirs[SW_MOVED_IN].packets);
    out->received_bytes += value_of(&theirs[SW_MOVED_OUT].bytes);
    out->received_packets += value_of(&theirs[SW_MOVED_OUT].packets);
}

void sw_account_retire(struct sw_direct_qp *d, const struct sw_direct_qp *lane)
{
    account_add_sums(lane, &d->send.of_lanes);
}

void sw_account_read(const struct sw_direct_qp *d, struct sw_traffic *out)
{
    *out = d->send.of_lanes;
    account_add_sums(d, out);
    for (const struct sw_direct_qp *lane = d->xrc.lanes; lane; lane = lane->xrc.next_lane)
        account_add_sums(lane, out);
}
