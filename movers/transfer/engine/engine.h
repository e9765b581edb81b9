/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is behind the handles of transfer.h. One thread at a time is in an agent; nothing here has a
 * lock. Everything that belongs to an agent hangs in one of its lists, so closing it finds all.
 *
 * An agent listens at several addresses, its rails, and meets RDMA devices there and where its
 * peers are. A peer has a lane to each rail of the other agent.
 */
#ifndef SW_MOVERS_TRANSFER_ENGINE_H
#define SW_MOVERS_TRANSFER_ENGINE_H

#include <netinet/in.h>

#include "common/rdma/connection.h"
#include "common/rdma/listener.h"
#include "sidewire/transfer.h"
#include "transfer/core/flow.h"
#include "transfer/wire/card.h"
#include "transfer/wire/message.h"

#define XFE_MS 1000000ull

enum {
    XFE_CREDITS = 32,   /* notices of one connection without acknowledgement */
    XFE_LIST = 32,      /* requests of one post to the device */
    XFE_SIGNAL = 16,    /* one in so many asks for a completion */
    XFE_DEPARTED = 256, /* sessions whose newest tag is remembered */
    XFE_RAILS_MAX = SW_XFER_ADDRESSES_MAX,
    XFE_DEVICES_MAX = 4,
    XFE_HOME_TRIES = 5,
    XFE_RESERVE = 8, /* the last one in so many places is for addresses that have few of them */
};

/* What an event of epoll is about: the first member of each. */
struct xfe_source {
    enum { XFE_EVENTS, XFE_TIMER, XFE_LANE, XFE_VISITOR, XFE_DEVICE } kind;
};

struct xfe_held { /* a notice that was not taken yet */
    struct list_node node;
    struct sw_xfer_notice notice;
    struct xfe_origin *origin;
};

struct xfe_origin { /* the visitors of one address, those that have left included */
    struct in6_addr address;
    uint32_t sessions, notices; /* that are here; 0 and 0: this is free */
};

struct xfe_session { /* one of a peer that visits, over all lanes that it has here */
    uint8_t instance[SW_XFER_INSTANCE_BYTES];
    uint64_t session, last_tag;
    uint64_t number; /* of the visitor */
    uint32_t lanes;  /* 0: this is free */
    struct xfe_origin *origin;
};

struct xfe_device {
    struct xfe_source source;
    struct sw_xfer_agent *agent;
    struct ibv_context *verbs;
    struct ibv_context *watch; /* for the events of its ports alone; NULL: not watched */
    struct ibv_pd *pd;
    uint32_t reads_max;
    bool has_windows;
};

struct xfe_rail {
    struct sw_xfer_agent *agent;
    struct mover_listener listener;
    struct rdma_cm_id *anchor; /* holds the device where the listener does not; else NULL */
    uint32_t device;
};

struct xfe_visitor;

struct sw_xfer_agent {
    struct sw_xfer_agent_options options;
    uint8_t instance[SW_XFER_INSTANCE_BYTES];
    uint8_t *alive;                    /* a page that is zero in a child of fork() */
    int epoll_fd, timer_fd, listen_fd; /* listen_fd: the timer of the listeners */
    struct xfe_source events_source, timer_source;
    struct rdma_event_channel *events; /* of the listeners */
    struct xfe_rail rails[XFE_RAILS_MAX];
    uint32_t rails_count;
    struct xfe_device devices[XFE_DEVICES_MAX];
    uint32_t devices_count; /* 0 until one is known */
    uint32_t pieces_max;    /* each device takes so many */

    struct list memories, leases, peers, blocks, transfers, ended;
    struct xfe_visitor **visitors; /* visitors_slots */
    struct xfe_session *sessions;  /* options.visitors_max */
    struct xfe_origin *origins;
    uint32_t origins_count;
    uint32_t visitors_slots;
    struct xfe_session departed[XFE_DEPARTED];
    uint32_t departed_next;
    struct xfe_held *held_all;
    struct list held, held_free;
    uint64_t last_session, last_visitor;
    uint64_t lease_wake_ns; /* no lease runs out before */
    uint64_t progress;      /* counts whatever came */
    uint32_t polls;
    uint32_t held_free_count;
    bool has_more; /* a visitor has more to do than a turn */
};

struct sw_xfer_memory {
    struct list_node node;
    struct sw_xfer_agent *agent;
    enum sw_xfer_memory_kind kind;
    void *data;       /* NULL: not seen by the processor */
    uint64_t address; /* as requests name its first byte */
    uint64_t bytes;
    void *mapped; /* of a file */
    uint64_t mapped_bytes;
    int fd;                              /* of a DMA buffer or a file to read, ours; -1 */
    uint64_t fd_offset;                  /* in it */
    struct ibv_mr *mrs[XFE_DEVICES_MAX]; /* NULL until the device is known */
    bool is_writable;
    bool is_doubtful; /* a peer that was stopped amid an access may still store to its pages */
    uint32_t uses;
};

struct sw_xfer_lease {
    struct list_node node;
    struct sw_xfer_memory *memory;
    char name[XFW_NAME_BYTES];
    uint64_t address, bytes, deadline_ns, visitor;
    uint32_t rights;
    struct ibv_mr *mrs[XFE_DEVICES_MAX];   /* these or the windows while it is granted */
    struct ibv_mw *windows[XFE_RAILS_MAX]; /* of each rail, for the visitor's lane there */
    uint32_t window_keys[XFE_RAILS_MAX];   /* the same each time that a lane is made anew */
    uint32_t bound;                        /* lanes whose queue pair has its window: bits */
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
    struct ibv_wc stash; /* seen by arm, for poll */
    bool has_stash;
    struct ibv_send_wr wrs[2 * XFE_LIST]; /* with the proofs of iWARP's WRITEs */
    struct ibv_sge sges[XFE_LIST][XFC_PIECES_MAX];
};

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

struct xfe_block {
    uint64_t address, bytes;
    uint32_t part;
};

struct sw_xfer_blocks {
    struct list_node node;
    struct sw_xfer_agent *agent;
    struct sw_xfer_peer *peer; /* NULL: local */
    struct sw_xfer_memory **memories;
    uint32_t (*keys)[XFE_RAILS_MAX]; /* of a peer's parts, for each lane */
    uint32_t parts, rights;
    struct xfe_block *all;
    uint32_t count;
    uint64_t requests; /* that they become at most */
    uint32_t uses;
};

struct sw_xfer_transfer {
    struct xfc_task task;
    struct list_node node;
    struct sw_xfer_peer *peer;
    struct sw_xfer_blocks *local, *remote;
    struct xfc_plan plan; /* its keys are numbers of parts */
    bool is_whole;        /* the plan is of all blocks, in their order */
    void *arg;
    uint32_t notice_bytes;
    uint8_t notice[SW_XFER_NOTICE_MAX];
};

/* ---- status.c ---- */

enum sw_xfer_status xfe_fail(struct sw_xfer_error *error, enum sw_xfer_status status,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Whether there is room for one more of somebody who has `own` of `all` places. The last eighth is
 * for those who have less than one: one that takes all there is leaves room for others. */
static inline bool xfe_has_share(uint32_t all, uint32_t free, uint32_t own)
{
    const uint32_t reserve = all / XFE_RESERVE;
    return free > reserve || (free && own < reserve);
}

/* ---- agent.c ---- */

static inline bool xfe_is_forked(const struct sw_xfer_agent *agent)
{
    return !*agent->alive;
}

/* ---- device.c ---- */

/* All memory is registered with each device that an agent meets. NULL: it has no room. */
struct xfe_device *xfe_device_adopt(struct sw_xfer_agent *agent, struct ibv_context *verbs);
/* Finds a device that was adopted; NULL: none. */
struct xfe_device *xfe_device_find(struct sw_xfer_agent *agent, const struct ibv_context *verbs);
/* Tells lanes of peers from now on when its ports come and go, if it can. */
void xfe_device_watch(struct xfe_device *device);
void xfe_device_events(struct xfe_device *device);
void xfe_devices_free(struct sw_xfer_agent *agent);

static inline uint32_t xfe_device_index(const struct xfe_device *device)
{
    return (uint32_t)(device - device->agent->devices);
}

/* ---- rail.c ---- */

/* Listens at one more address. */
enum sw_xfer_status xfe_rail_start(struct sw_xfer_agent *agent, const char *address,
                                   struct sw_xfer_error *error);
/* The event was a listener's own. */
bool xfe_rails_take(struct sw_xfer_agent *agent, const struct rdma_cm_id *id,
                    enum rdma_cm_event_type type);
/* Listens again where an address is back. */
void xfe_rails_tick(struct sw_xfer_agent *agent);

/* ---- memory.c ---- */

/* Zeros, on pages of their own: what is registered shares none with the heap. NULL: no memory. */
void *xfe_pages(size_t bytes);
/* Once the device is known. */
bool xfe_memory_register(struct sw_xfer_memory *memory, struct xfe_device *device);
/* A registration of a part of it that peers can reach. */
struct ibv_mr *xfe_memory_share(const struct sw_xfer_memory *memory,
                                const struct xfe_device *device, uint64_t offset, uint64_t bytes,
                                int access);
/* Deregisters all of it, and registers it anew. False: it is in use, or that would not help. */
bool xfe_memory_renew(struct sw_xfer_memory *memory);
void xfe_memory_free(struct sw_xfer_memory *memory);

/* ---- lease.c ---- */

void xfe_leases_timers(struct sw_xfer_agent *agent, uint64_t now_ns);
/* By which a peer that comes to this rail names it. */
uint32_t xfe_lease_key(const struct sw_xfer_lease *lease, uint32_t rail);
/* The visitor has no lane any more: its windows end. */
void xfe_leases_of_visitor_end(struct sw_xfer_agent *agent, uint64_t visitor);
/* One of its lanes has a new queue pair, which can send; or has none any more. */
bool xfe_leases_of_lane_bind(struct sw_xfer_agent *agent, struct xfe_visitor *visitor);
void xfe_leases_of_lane_end(struct sw_xfer_agent *agent, uint64_t visitor, uint32_t lane);
bool xfe_leases_have_windows(const struct sw_xfer_agent *agent, uint64_t visitor);

/* ---- peer.c ---- */

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

/* ---- lane.c ---- */

void xfe_lane_start(struct xfe_lane *lane);
/* Its queue pair is of no use any more, but the peer lives: connects again, and goes on. */
void xfe_lane_restart(struct xfe_lane *lane);
static inline bool xfe_device_is_iwarp(const struct xfe_device *device)
{
    return device->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
}

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

/* The other ways to the peer, then none. */
void xfe_lane_try_next(struct xfe_lane *lane, enum sw_xfer_status status, const char *what);
void xfe_lane_drop(struct xfe_lane *lane);
void xfe_lane_events(struct xfe_lane *lane);
void xfe_lane_free(struct xfe_lane *lane);

/* ---- send.c: the queue pair of a lane ---- */

bool xfe_send_post_receives(struct xfe_lane *lane);
/* Gives the device one list of what there is. False: there is no more, or no room. */
bool xfe_send_push(struct xfe_lane *lane);
void xfe_send_poll(struct xfe_lane *lane);

/* ---- sums.c ---- */

/* The message that asks for these sums of the transfer, by the keys of a lane. Returns its length.
 */
uint32_t xfe_sums_ask(const struct sw_xfer_transfer *transfer, const struct xfc_step *step,
                      uint32_t lane, uint8_t *message);
/* Compares what was answered with what is here. OK, CORRUPT, or DENIED where it is no answer. */
enum sw_xfer_status xfe_sums_compare(struct xfc_plan *plan, const struct xfc_out *out,
                                     const uint8_t *message, uint32_t bytes);
/* What is asked of this side, from the `at`th sum on, until about so many bytes have been summed.
 * Returns the length of the answer; 0: there is more to do. */
uint32_t xfe_sums_answer(struct sw_xfer_agent *agent, uint64_t visitor, uint32_t rail,
                         const uint8_t *message, const struct xfw_message *header, uint32_t *at,
                         uint64_t *left_bytes, uint8_t *answer);

/* ---- blocks.c, transfer.c ---- */

void xfe_blocks_free(struct sw_xfer_blocks *blocks);
void xfe_transfer_free(struct sw_xfer_transfer *transfer);
/* Whether none that is posted uses it. */
bool xfe_transfers_let_go(struct sw_xfer_agent *agent, const struct sw_xfer_memory *memory);

/* ---- origin.c ---- */

bool xfe_origins_make(struct sw_xfer_agent *agent);
/* That of the address. A new one lasts once a session or a notice is counted there. */
struct xfe_origin *xfe_origin_of(struct sw_xfer_agent *agent, const struct in6_addr *address);
/* The connection is one of this host to itself. */
bool xfe_origin_is_here(struct rdma_cm_id *id);

/* ---- visitor.c ---- */

void xfe_visitors_events(struct sw_xfer_agent *agent);
void xfe_visitor_ready(struct xfe_visitor *visitor);
/* A turn for each of those that had more to do than one. */
void xfe_visitors_go_on(struct sw_xfer_agent *agent);
void xfe_visitors_end(struct sw_xfer_agent *agent);
/* One of its lanes, or that lane; NULL: it has none. */
struct xfe_visitor *xfe_visitor_of(const struct sw_xfer_agent *agent, uint64_t number);
struct xfe_visitor *xfe_visitor_at(const struct sw_xfer_agent *agent, uint64_t number,
                                   uint32_t lane);
uint64_t xfe_visitor_number(const struct xfe_visitor *visitor);
uint32_t xfe_visitor_lane(const struct xfe_visitor *visitor);
void xfe_visitor_end(struct xfe_visitor *visitor);
/* Posts a request that has to do with a window, and waits for its completion. -EOPNOTSUPP: the
 * device takes none; -EPIPE: its queue pair is of no use any more. */
int xfe_visitor_window(struct xfe_visitor *visitor, struct ibv_send_wr *wr);
/* Takes notices that had no room. */
void xfe_visitors_retry(struct sw_xfer_agent *agent);

/* ---- notice.c ---- */

bool xfe_notices_make(struct sw_xfer_agent *agent);
/* Where the next notice of that session can be put; NULL: no room. */
struct sw_xfer_notice *xfe_notices_room(struct sw_xfer_agent *agent,
                                        const struct xfe_session *session);
/* Adds the notice that was put there. */
void xfe_notices_add(struct sw_xfer_agent *agent, struct xfe_session *session);

#endif
