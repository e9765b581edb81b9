/* SPDX-License-Identifier: BSD-2-Clause */
/* What a device counts by name: of this process (written by any thread, read by any), or of all. */
#ifndef SW_DEVICE_QUEUE_COUNTERS_H
#define SW_DEVICE_QUEUE_COUNTERS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/queue/traffic.h"

struct sw_netdev;

enum sw_counter {
    SW_RX_DROP_NO_QP,       /* no such QP here, or not in a state to receive */
    SW_RX_DROP_ASTRAY,      /* nothing that the peer can have sent */
    SW_RX_DROP_QKEY,        /* wrong Q_Key */
    SW_RX_DROP_NO_RECV,     /* no receive posted */
    SW_RX_DROP_LENGTH,      /* the receive is shorter than header and message */
    SW_RX_DROP_MALFORMED,   /* not a datagram */
    SW_RX_DROP_CROWDED,     /* connection management: too much of one address waits */
    SW_TX_DROP_UNREACHABLE, /* nobody at that address and QPN */
    SW_TX_DROP_STALLED,     /* the receiver's process does not take what it is sent */
    SW_PEER_REFUSED,        /* connections to or of processes that are not trusted */
    SW_PEER_MEMORY_LOST,    /* accesses to memory whose file its owner has made shorter */
    SW_REQ_ERROR,           /* completions of send queues in error */
    SW_REQ_FLUSH,           /* of these flushed ones */
    SW_RESP_ERROR,          /* of receive queues */
    SW_RESP_FLUSH,
    SW_RNR_EXCEEDED,      /* requests whose retries for want of a receive were used up */
    SW_RETRY_EXCEEDED,    /* requests that nobody answered */
    SW_RNR_RECEIVED,      /* a request was told that there is no receive */
    SW_RNR_SENT,          /* and told so by this side; packets only */
    SW_OUT_OF_SEQUENCE,   /* request packets after a gap; from here on all is of packets */
    SW_DUPLICATE_REQUEST, /* request packets that had been executed */
    SW_PACKET_SEQ_ERR,    /* NAKs that told of a gap */
    SW_ACK_TIMEOUT,       /* retransmission timers run out */
    SW_RETRANSMITTED,     /* packets sent again */
    SW_ICRC_ERROR,        /* packets damaged on the way */
    SW_CNP_SENT,
    SW_CNP_HANDLED,
    SW_ECN_MARKED,          /* packets that a router marked */
    SW_TIMEOUTS_EXCUSED,    /* of these, for a peer that lives and did not run */
    SW_PEER_DEATHS,         /* processes found dead that queue pairs were connected to */
    SW_LIVENESS_REFUSALS,   /* who called by TCP and was not told to */
    SW_TERMINATES_SENT,     /* iWARP: connections ended for what their peers did, ... */
    SW_TERMINATES_RECEIVED, /* ... or what they said this side did */
    SW_IWARP_STRANGERS,     /* callers of listeners that were let go before they were told of */
    SW_TCP_CONNECTIONS,     /* RoCE over TCP: begun, by either side's call; ... */
    SW_TCP_FALLBACKS,       /* ... for want of an answer by UDP; ... */
    SW_TCP_RESETS,          /* ... that ended without a word */
    SW_TCP_REFUSED,         /* calls of this side that were put off, or answered wrongly */
    SW_TCP_STRANGERS,       /* callers that named no queue pair here, or not as its program has */
    SW_COUNTER_COUNT
};

/* `dev` NULL, where it concerns none (docs/counters.md): the first device. */
void sw_counter_add(struct sw_netdev *dev, enum sw_counter counter);
void sw_counter_add_many(struct sw_netdev *dev, enum sw_counter counter, uint64_t more);
uint64_t sw_counter_read(struct sw_netdev *dev, enum sw_counter counter);
/* Counts a completion in error: of a receive queue, or of a send queue. */
void sw_counter_add_error(struct sw_netdev *dev, enum ibv_wc_status status, bool of_receive);
/* "rx_drop_no_qp" and so on: names of files in hw_counters. */
const char *sw_counter_name(enum sw_counter counter);

/* All there is to count. */
struct sw_counts {
    struct sw_traffic traffic;
    uint64_t counters[SW_COUNTER_COUNT];
};
/* This process's. Takes nic.lock. */
void sw_counts_read(struct sw_netdev *dev, struct sw_counts *out);
void sw_counts_add(struct sw_counts *sum, const struct sw_counts *part);
/* In a forked child: what was counted is its parent's. */
void sw_counts_fork_child(void);

#endif
