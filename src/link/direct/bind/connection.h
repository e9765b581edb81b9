/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One connected queue pair: what binds it to its peer (remote.h), what it has sent (sending.h) and
 * what it serves (serving.h). With the QP locked. A source that only hands it on declares it, and
 * includes nothing.
 */
#ifndef SW_LINK_DIRECT_BIND_CONNECTION_H
#define SW_LINK_DIRECT_BIND_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "link/direct/bind/remote.h"
#include "link/direct/bind/sending.h"
#include "link/direct/bind/serving.h"

struct sw_block;
struct sw_inbox;
struct sw_netdev;
struct sw_peer;
struct sw_verdict_rule;

/* XRC (lane.h). */
struct sw_direct_xrc {
    /* An initiator's lanes, and the one in use, if any. */
    struct sw_direct_qp *lanes, *busy;
    /* For a lane. */
    struct sw_direct_qp *next_lane;
    int lane_state; /* enum sw_lane_state */
    /* For a stand-in: the block that its initiator lends it, and the life that reads it. */
    uint32_t lent_block, lent_token;
};

/*
 * The order is that of use: what one request touches lies close together. The fields that are
 * checked for each request (the peer, the blocks, `remote`, `keys`) come first and take five cache
 * lines. `send` and `serve` begin with their positions; times, sums and failures lie behind. A
 * field that each request reads belongs to one of these groups, not to the end.
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

#endif
