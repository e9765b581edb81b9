/* SPDX-License-Identifier: BSD-2-Clause */
/* What was moved, as both ends count it: the initiator adds up, and once for each access section it
 * writes the sums into the block, beside the word that it writes for the section anyway. */
#ifndef SW_LINK_DIRECT_BIND_ACCOUNT_H
#define SW_LINK_DIRECT_BIND_ACCOUNT_H

#include "device/queue/qp_impl.h"
#include "device/queue/traffic.h"
#include "link/direct/bind/connection.h"
#include "link/direct/process/block.h"

/* A request that was started. */
static inline void sw_account_request(struct sw_qp *qp, struct sw_direct_qp *d, unsigned int opcode,
                                      uint32_t len_bytes)
{
    const unsigned int fetching = 1u << IBV_WR_RDMA_READ | 1u << IBV_WR_ATOMIC_CMP_AND_SWP |
                                  1u << IBV_WR_ATOMIC_FETCH_AND_ADD;
    struct sw_sum *sum = &d->send.sums[fetching >> opcode & 1];
    sum->bytes += len_bytes;
    sum->packets += sw_traffic_packets(len_bytes, qp->attr.path_mtu);
}

/* Requests of one direction that were done, a packet each; `way`: SW_MOVED_OUT or SW_MOVED_IN. */
static inline void sw_account_short(struct sw_direct_qp *d, unsigned int way, uint32_t bytes,
                                    uint32_t packets)
{
    d->send.sums[way].bytes += bytes;
    d->send.sums[way].packets += packets;
}

/* Inside the section. */
static inline void sw_account_tell(struct sw_direct_qp *d)
{
    for (int i = 0; i < 2; i++) {
        atomic_store_explicit(&d->tx->moved[i].bytes, d->send.sums[i].bytes, memory_order_relaxed);
        atomic_store_explicit(&d->tx->moved[i].packets, d->send.sums[i].packets,
                              memory_order_relaxed);
    }
}

/* A lane is about to go: what it moved stays. */
void sw_account_retire(struct sw_direct_qp *d, const struct sw_direct_qp *lane);

/* In both directions. Its QP is locked, as for all of struct sw_direct_qp. */
void sw_account_read(const struct sw_direct_qp *d, struct sw_traffic *out);

#endif
