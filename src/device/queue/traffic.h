/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the queue pairs of this process have moved, as its device's counters tell. The data path
 * shares nothing for it: the initiator of a request adds up in the line of shared memory that it
 * writes anyway, where its target's process finds the other side of the same numbers, and the
 * reader of a counter goes through the QPs.
 */
#ifndef SW_DEVICE_QUEUE_TRAFFIC_H
#define SW_DEVICE_QUEUE_TRAFFIC_H

#include <infiniband/verbs.h>
#include <stdint.h>

struct sw_netdev;
struct sw_qp;

/* Messages count as the packets that they would be on a wire. */
struct sw_traffic {
    uint64_t sent_bytes, sent_packets;
    uint64_t received_bytes, received_packets;
    uint64_t sent_multicast, received_multicast; /* of the packets */
};

/* Packets of a message; a power of two is the path's MTU. */
static inline uint64_t sw_traffic_packets(uint32_t len_bytes, enum ibv_mtu mtu)
{
    return len_bytes ? ((len_bytes - 1) >> (7 + mtu)) + 1 : 1;
}

void sw_traffic_add(struct sw_traffic *sum, const struct sw_traffic *part);

/* All that the process's QPs on this device have moved, also those that are gone; never less than
 * before. Takes nic.lock. */
void sw_traffic_read(struct sw_netdev *dev, struct sw_traffic *out);
/* The QP goes, its part stays; nic.lock held. */
void sw_traffic_keep(const struct sw_qp *qp);
/* In a forked child: what was moved is its parent's. */
void sw_traffic_fork_child(void);

#endif
