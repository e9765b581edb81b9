/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transfers of one peer as a machine: which request is given to the queue pair next, what a
 * completion confirms, which transfer has ended and how. No verbs, no clock, no memory of its own.
 *
 * The owner gives what xfc_flow_next() says to a queue pair, in that order, and tells of
 * completions by the number that each request has got. Requests that were given and not yet
 * confirmed lie in a ring. A task ends only when none of its requests is in the ring: either all
 * were confirmed, or the owner has destroyed the queue pair and called xfc_flow_reset().
 */
#ifndef SW_MOVERS_TRANSFER_FLOW_H
#define SW_MOVERS_TRANSFER_FLOW_H

#include "common/list.h"
#include "sidewire/transfer.h"
#include "transfer/core/plan.h"

enum xfc_notice {
    XFC_NO_NOTICE,
    XFC_NOTICE_WAITS,
    XFC_NOTICE_GIVEN, /* to the queue pair */
    XFC_NOTICE_TAKEN, /* acknowledged by the peer */
};

/* Why no more of a task is given, though it is not done. */
enum xfc_ending { XFC_GOES_ON, XFC_CANCEL, XFC_DEADLINE, XFC_FAULT };

struct xfc_task {
    struct list_node node; /* of the flow while it is posted, then of `ended`; unlinked: neither */
    const struct xfc_plan *plan;
    enum sw_xfer_op op;
    enum sw_xfer_state state;
    enum sw_xfer_status status;
    enum xfc_notice notice;
    enum xfc_ending ending;
    uint32_t given, confirmed; /* requests of the plan; the queue pair has what lies between */
    uint32_t given_most;       /* of all queue pairs that it had */
    uint32_t in_ring;          /* its entries there, the notice included */
    uint64_t tag;              /* of its notice, kept when that is sent again; 0: none yet */
    uint64_t bytes_done;
    uint64_t deadline_ns, drain_ns; /* drain_ns: when what is given has to be confirmed */
    uint64_t posted_ns, ended_ns;
    bool is_loose; /* requests of an earlier queue pair may still reach the peer */
};

struct xfc_entry {
    struct xfc_task *task;
    uint32_t bytes;
    bool is_notice;
};

struct xfc_flow {
    struct list tasks;         /* posted, oldest first */
    struct list *ended;        /* where those go that have ended */
    struct list_node *sending; /* the first task that may have something to give; NULL: none */
    struct xfc_entry *ring;
    uint32_t depth;
    uint64_t given, confirmed; /* numbers of requests, over all time */
    uint64_t window_bytes, bytes_given;
    uint32_t notices_out, notices_max;
    uint64_t last_tag;
    uint64_t drain_ns; /* how long what is under way may take to end */
    uint64_t wake_ns;  /* no timer is due before; UINT64_MAX: none */
};

struct xfc_step {
    struct xfc_task *task;
    const struct xfc_request *request; /* NULL: its notice */
    uint64_t number;                   /* for xfc_flow_confirm() */
};

/* `ring` has room for `depth` entries. */
void xfc_flow_init(struct xfc_flow *flow, struct xfc_entry *ring, uint32_t depth,
                   uint64_t window_bytes, uint64_t drain_ns, struct list *ended);
/* The task is not posted; plan, op, notice and deadline are set. */
void xfc_flow_post(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns);
/* What is given to the queue pair next. False: nothing, or nothing has room. */
bool xfc_flow_next(struct xfc_flow *flow, struct xfc_step *step);
/* All up to this number are done. */
void xfc_flow_confirm(struct xfc_flow *flow, uint64_t number, uint64_t now_ns);
/* All before this number are done; this one the peer's device refused, so its task ends. The owner
 * then destroys the queue pair and resets. */
void xfc_flow_refused(struct xfc_flow *flow, uint64_t number, enum sw_xfer_status status,
                      uint64_t now_ns);
/* False: the peer acknowledges what was not sent. */
bool xfc_flow_acked(struct xfc_flow *flow, uint64_t tag, uint64_t now_ns);
void xfc_flow_cancel(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns);
/* The queue pair is gone. Tasks that were to end do; the others go back to what is confirmed. */
void xfc_flow_reset(struct xfc_flow *flow, uint64_t now_ns);
/* The peer has ended its side of earlier queue pairs. */
void xfc_flow_settled(struct xfc_flow *flow);
/* After a reset: none goes on. */
void xfc_flow_fail_all(struct xfc_flow *flow, enum sw_xfer_status status, uint64_t now_ns);
/* Deadlines. True: something that had to end is not confirmed in time; destroy the queue pair. */
bool xfc_flow_timers(struct xfc_flow *flow, uint64_t now_ns);

static inline bool xfc_flow_is_empty(const struct xfc_flow *flow)
{
    return list_is_empty(&flow->tasks);
}

/* Something is with the queue pair. */
static inline bool xfc_flow_waits(const struct xfc_flow *flow)
{
    return flow->given != flow->confirmed;
}

#endif
