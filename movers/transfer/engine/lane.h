/* SPDX-License-Identifier: BSD-2-Clause */
/* One way to a peer: its connection, from an address of ours to one of the card. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_LANE_H
#define SW_MOVERS_TRANSFER_ENGINE_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "common/rdma/connection.h"
#include "sidewire/transfer.h"
#include "transfer/core/flow.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/device.h"
#include "transfer/engine/notice.h"
#include "transfer/engine/peer.h"
#include "transfer/engine/source.h"
#include "transfer/wire/message.h"

enum {
    XFE_LIST = 32, /* requests of one post to the device */
    XFE_HOME_TRIES = 5,
};

/* Memory that the device reads and writes for the library itself. */
struct xfe_scratch {
    uint8_t notices[XFE_CREDITS][XFW_MESSAGE_MAX];
    uint8_t acks[XFE_CREDITS][XFW_ANSWER_MAX];
};

enum xfe_lane_state { XFE_DOWN, XFE_CONNECTING, XFE_UP };

/* One queue pair at a time, to one rail of the peer. */
struct xfe_lane {
    struct xfe_source source;
    struct sw_xfer_peer *peer;
    uint32_t index;
    enum xfe_lane_state state;
    uint32_t address_at; /* which of the card's addresses is tried */
    uint32_t source_at;  /* from which rail of ours */
    char where[64];
    struct mover_connection connection;
    struct xfe_device *device; /* NULL: not known */
    bool is_dirty;             /* it was lost, and the peer may not have ended its side yet */
    bool has_broken;           /* the device takes nothing: the next poll sees to it */
    uint32_t connections;      /* that came up, over all time */
    uint32_t failures;         /* since then, or since a port came up */
    uint32_t dirty_resets;     /* of the flow's lane, when it became dirty */
    uint32_t home_tries;       /* that are left to come from its own rail again */
    uint64_t home_ns;          /* when the next one is due; 0: none */
    uint64_t connect_deadline_ns, retry_ns, dirty_ns, progress_ns;
    struct xfe_scratch *scratch;
    struct ibv_mr *scratch_mr; /* at `scratch_device` */
    struct xfe_device *scratch_device;
    struct ibv_send_wr wrs[2 * XFE_LIST]; /* with the proofs of iWARP's WRITEs */
    struct ibv_sge sges[XFE_LIST][XFC_PIECES_MAX];
};

static inline bool xfe_lane_is_iwarp(const struct xfe_lane *lane)
{
    return xfe_device_is_iwarp(lane->device);
}

/* It comes from another rail of ours than its own. */
static inline bool xfe_lane_is_away(const struct xfe_lane *lane)
{
    return lane->state == XFE_UP && lane->source_at;
}

/* Its own rail. An agent without an address has none. */
static inline const struct xfe_rail *xfe_lane_home(const struct xfe_lane *lane)
{
    const struct sw_xfer_agent *agent = lane->peer->agent;
    return agent->rails_count ? &agent->rails[lane->index % agent->rails_count] : NULL;
}

void xfe_lane_start(struct xfe_lane *lane);
/* Its queue pair is of no use any more, but the peer lives: connects again, and goes on. */
void xfe_lane_restart(struct xfe_lane *lane);
/* The other ways to the peer, then none. */
void xfe_lane_try_next(struct xfe_lane *lane, enum sw_xfer_status status, const char *what);
void xfe_lane_drop(struct xfe_lane *lane);
void xfe_lane_events(struct xfe_lane *lane);
void xfe_lane_free(struct xfe_lane *lane);

#endif
