/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One connected queue pair: what binds it to its peer, what it has sent and what it has received.
 * With the QP locked.
 */
#ifndef SW_LINK_DIRECT_BIND_CONNECTION_H
#define SW_LINK_DIRECT_BIND_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "device/queue/traffic.h"
#include "device/rules/pub.h"
#include "device/rules/target.h"
#include "device/serve/flushing.h"
#include "device/serve/receive.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/peer.h"

struct sw_qp;

struct sw_remote_key { /* a region of the peer that was checked and mapped */
    uint32_t rkey;
    uint32_t access; /* of the region and the QP together */
    uint64_t key_word;
    const _Atomic uint64_t *word;
    uint64_t low, high; /* remote addresses [low, high) */
    uint8_t *bytes;     /* where `low` is in this process */
};

/* XRC (lane.h). */
struct sw_direct_xrc {
    /* Of an initiator: its lanes, and the one in use, if any. */
    struct sw_direct_qp *lanes, *busy;
    /* Of a lane. */
    struct sw_direct_qp *next_lane;
    int lane_state; /* enum sw_lane_state */
    /* Of a stand-in: the block that its initiator lends it, and the life that reads it. */
    uint32_t lent_block, lent_token;
};

/* What the peer's QP publishes: a copy, good while its word does not change. */
struct sw_direct_remote {
    const struct sw_pub_qp *entry;
    uint64_t word;
    uint32_t qpn, access, pd, recv_cq;
    struct sw_pub_domain domain; /* XRC */
    uint32_t srq_num;  /* XRC: the SRQ that PD and CQ above are of, while its word is this */
    uint64_t srq_word; /* 0: none yet */
    uint32_t rq_entries, rq_stride;
    const uint8_t *rq;
};

/* The requester: our requests to the peer, and its answers. Positions run freely. */
struct sw_direct_send {
    uint32_t request_at;    /* next record to write */
    uint32_t served_before; /* serve.at when the last one was written */
    uint32_t request_limit; /* first position that may not be written yet */
    uint32_t bounce_at;     /* of the request area */
    uint32_t recv_used;     /* of the peer's receives, by us */
    uint32_t recv_posted;   /* as last read */
    uint32_t answers_due;   /* requests at the target */
    uint32_t reads_due;     /* of these READs and atomics */
    uint32_t response_at;   /* next answer to read */
    uint32_t response_told; /* what the peer was told of it */
    uint32_t stall_looks;   /* without reading the clock */
    uint32_t stall_turn;    /* of the engine, at the last one */
    uint64_t stalled_ns;    /* since when the target owes progress; 0: not */
    uint64_t rung_ns, looked_ns;
    uint64_t unbound_ns; /* since when the peer's QP cannot be reached */
    uint64_t fault_ns;   /* since when the peer's memory faults */
    uint64_t rnr_ns;     /* since when no receive is posted */
    uint32_t rnr_tries;
    uint64_t budget_bytes; /* left of what one step may move, of whichever machine */
    bool notify;           /* a record was written that may wake the peer's CQ */
    bool notify_solicited;
    bool notify_all; /* records for different CQs were written */
    bool in_doubt;   /* whether the last request that recv_used counts takes its receive */
    struct sw_sum {
        uint64_t bytes, packets;
    } sums[2]; /* SW_MOVED_*: our copy; the block may serve others when it is asked for */
    struct sw_traffic of_lanes; /* that are gone */
    enum ibv_wc_status fail_status;
    enum sw_verdict fail_verdict; /* SW_ACK: the failure is local, the peer need not know */
};

/* The responder: the peer's requests, and our answers. Positions run freely. */
struct sw_direct_serve {
    uint32_t at;         /* next request to read */
    uint32_t bounce_end; /* end of the bounce space served, and what the peer was told of it */
    uint32_t bounce_told;
    uint32_t told;         /* what the peer was told of `at` */
    uint32_t answer_at;    /* next answer to write */
    uint32_t answer_limit; /* first position that may not be written yet */
    uint32_t acks_due;     /* requests done since the last answer */
    uint32_t answer_bounce_at;
    uint32_t read_bytes;         /* of the READ at the head, sent already */
    struct sw_flushing flushing; /* the FLUSH at the head */
    struct sw_receive receive;   /* of the message that is coming in, and its bytes so far */
    uint32_t received_bytes;
    bool is_running; /* the responder runs, or has ended the connection */
    uint64_t rnr_ns; /* since when no receive is posted */
    bool greeted;    /* the peer has said that it begins */
    bool skipping;   /* the rest of an unreliable message that was lost */
    uint32_t lost;   /* messages */
    bool is_over;    /* the peer was told that its retries are used up: nothing more comes */
};

/*
 * The order is that of use: what one request touches lies close together. What is checked for each
 * request (the peer, the blocks, `remote`, `keys`) comes first and takes five cache lines. `send`
 * and `serve` begin with their positions; times, sums and failures lie behind. A field that each
 * request reads belongs to one of these groups, not to the end.
 */
struct sw_direct_qp {
    const struct sw_verdict_rule *rules; /* of the QP's type */
    struct sw_peer *peer;
    struct sw_inbox *inbox;
    struct sw_block *rx; /* in our inbox */
    uint32_t rx_index;
    uint32_t life;      /* unique per binding of this process */
    uint64_t gone_ns;   /* when the peer's death was seen */
    bool death_handled; /* what the peer's death means was done */
    struct sw_direct_xrc xrc;

    struct sw_block *tx; /* in the peer's inbox; NULL: not bound */
    uint32_t tx_reader;  /* life of the peer's QP that reads it */
    struct sw_direct_remote remote;
    uint32_t access_seq;
    bool accessing;
    struct sw_remote_key keys[2];
    uint32_t key_turn;

    struct sw_direct_send send;
    struct sw_direct_serve serve;
    struct sw_netdev *dev; /* that counts for it; NULL: the first */
};

/* The peer's QP to the rules of the target: as the one that remote requests come to, and as the
 * owner of its receives. */
static inline struct sw_target_qp sw_remote_side(const struct sw_direct_qp *d)
{
    return (struct sw_target_qp){d->remote.qpn, d->remote.pd, d->remote.access};
}
static inline struct sw_target_qp sw_remote_own(const struct sw_direct_qp *d)
{
    return (struct sw_target_qp){0, d->remote.pd, ~0u};
}

#endif
