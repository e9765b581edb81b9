/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers: live while one of their lanes is up, gone for good, and what lanes mean to each other. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_PEER_H
#define SW_MOVERS_TRANSFER_ENGINE_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "sidewire/transfer.h"
#include "transfer/core/flow.h"
#include "transfer/wire/card.h"

struct xfe_lane;

struct sw_xfer_peer {
    struct list_node node;
    struct sw_xfer_agent *agent;
    struct xfw_card card;
    enum sw_xfer_peer_state state;
    struct sw_xfer_error error;
    bool was_live;
    bool has_more; /* lists were full */
    uint64_t session;
    struct xfc_flow flow;
    struct xfe_lane *lanes;
    uint32_t lanes_count; /* 1, or the addresses of a card that has a key for each */
    uint32_t notice_bytes_max, abilities;
    uint32_t uses;
};

void xfe_peer_timers(struct sw_xfer_peer *peer, uint64_t now_ns);
/* Takes what has come, and gives the device what it has room for. */
void xfe_peer_poll(struct sw_xfer_peer *peer);
void xfe_peer_push(struct sw_xfer_peer *peer);
/* Some of it is with a device. */
bool xfe_peer_waits(const struct sw_xfer_peer *peer);
uint64_t xfe_peer_wake_ns(const struct sw_xfer_peer *peer);
void xfe_peer_gone(struct sw_xfer_peer *peer, enum sw_xfer_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void xfe_peer_free(struct sw_xfer_peer *peer);
/* A lane has come up, is down, is lost (and tried again later): what that means for others. */
void xfe_peer_lane_up(struct xfe_lane *lane);
void xfe_peer_lane_down(struct xfe_lane *lane);
void xfe_peer_lane_lost(struct xfe_lane *lane, enum sw_xfer_status status, const char *what);

#endif
