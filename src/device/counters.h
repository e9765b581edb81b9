/* SPDX-License-Identifier: BSD-2-Clause */
/* What a device counts of this process's traffic, by name. Written by any thread, read by any. */
#ifndef SW_DEVICE_COUNTERS_H
#define SW_DEVICE_COUNTERS_H

#include <stdint.h>

struct sw_netdev;

enum sw_counter {
    SW_RX_DROP_NO_QP,       /* no such QP here, or not in a state to receive */
    SW_RX_DROP_QKEY,        /* wrong Q_Key */
    SW_RX_DROP_NO_RECV,     /* no receive posted */
    SW_RX_DROP_LENGTH,      /* the receive is shorter than header and message */
    SW_RX_DROP_MALFORMED,   /* not a datagram */
    SW_TX_DROP_UNREACHABLE, /* nobody at that address and QPN */
    SW_TX_DROP_STALLED,     /* the receiver's process does not take what it is sent */
    SW_COUNTER_COUNT
};

/* `dev` NULL, where it cannot be told: the first device. */
void sw_counter_add(struct sw_netdev *dev, enum sw_counter counter);
uint64_t sw_counter_read(struct sw_netdev *dev, enum sw_counter counter);
/* "rx_drop_no_qp" and so on. */
const char *sw_counter_name(enum sw_counter counter);

#endif
