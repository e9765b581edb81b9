/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transfers of one peer as a machine: which request is given to which queue pair next, what a
 * completion confirms, which transfer has ended and how. No verbs, no clock, no memory of its own.
 *
 * A peer has one queue pair or several, its lanes. The owner gives what xfc_flow_next() says to a
 * lane's queue pair, in that order, and tells of completions by the number that each entry has got.
 * Entries that were given and not yet confirmed lie in the lane's ring. A task ends only when none
 * of its entries is in a ring: either all were confirmed, or the owner has destroyed the queue pair
 * and called xfc_flow_reset().
 *
 * Tasks take turns: a lane gives a slice of one, then of the next. So a large one holds up none.
 *
 * The requests of a lost lane are stranded: packets of them may still reach the peer. They are
 * given to another lane once the peer has ended its side of the lost one, and xfc_flow_settled()
 * says so. The one lane for messages asks for that.
 *
 * Messages are what the peer's agent answers: a notice, behind all data; what the sums of blocks
 * are; to end its side of a lane. They go on one lane at a time, so that they come in their order.
 */
#ifndef SW_MOVERS_TRANSFER_FLOW_H
#define SW_MOVERS_TRANSFER_FLOW_H

#include "common/base/list.h"
#include "sidewire/transfer.h"
#include "transfer/core/plan.h"

enum {
    XFC_LANES_MAX = SW_XFER_ADDRESSES_MAX,
    XFC_OUT_MAX = 32,        /* messages without an answer */
    XFC_SLICE_REQUESTS = 16, /* a task's, then it is another's turn */
    XFC_SLICE_BYTES = 1 << 20,
};

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
    struct list_node turn; /* of those with requests to give, or of those with a message to give */
    struct xfc_plan *plan;
    enum sw_xfer_op op;
    enum sw_xfer_state state;
    enum sw_xfer_status status;
    enum xfc_notice notice;
    enum xfc_ending ending;
    bool has_sums;                            /* the plan's, to be compared before it is done */
    bool is_corrupt;                          /* a sum differed; it ends when all are compared */
    bool is_talking;                          /* `turn` is of those with a message */
    uint32_t cursor;                          /* requests before it were given at least once */
    uint32_t lost;                            /* of these: to be given again */
    uint32_t lost_from;                       /* none of them before it */
    uint32_t stranded;                        /* of these: with a lost lane that is not settled */
    uint32_t confirmed;                       /* how many, wherever they are */
    uint32_t in_ring, in_lane[XFC_LANES_MAX]; /* entries, messages included */
    uint32_t sums_given, sums_known;          /* of the plan's sums */
    uint64_t tag; /* of its notice, kept when that is sent again; 0: none yet */
    uint64_t bytes_done;
    uint64_t deadline_ns, drain_ns; /* drain_ns: when what is given has to be confirmed */
    uint64_t posted_ns, ended_ns;
    uint32_t loose; /* lanes whose lost queue pairs may still reach the peer: bits */
};

enum xfc_kind { XFC_REQUEST, XFC_NOTICE, XFC_SUMS, XFC_DROP };

struct xfc_entry {
    struct xfc_task *task; /* NULL of DROP */
    uint32_t bytes, request;
    enum xfc_kind kind;
};

struct xfc_lane {
    struct xfc_entry *ring;
    uint32_t depth;
    uint64_t given, confirmed; /* numbers of entries, over all time */
    uint64_t window_bytes, bytes_given;
    uint64_t bytes_done;    /* confirmed over all time */
    uint32_t resets;        /* queue pairs that it had before */
    struct xfc_task *slice; /* whose turn it is here; NULL: the next one's */
    uint32_t slice_requests;
    uint64_t slice_bytes;
};

/* A message without its answer. */
struct xfc_out {
    uint64_t tag; /* 0: free */
    enum xfc_kind kind;
    struct xfc_task *task; /* NULL: it has ended, or DROP */
    uint32_t first, count; /* of the plan's sums; of DROP the lane, and its `resets` */
};

struct xfc_flow {
    struct list tasks;   /* posted, oldest first */
    struct list turns;   /* of these: with requests to give */
    struct list talkers; /* of these: with a message to give, all requests being given */
    struct list *ended;  /* where those go that have ended */
    struct xfc_lane lanes[XFC_LANES_MAX];
    uint32_t message_lane;
    uint32_t drops; /* lanes that the peer is to end, and was not told to: bits */
    uint32_t owed;  /* notices that have a tag, and wait to be sent again */
    struct xfc_out outs[XFC_OUT_MAX];
    uint32_t outs_count, outs_max;
    uint32_t outs_kept; /* of these, for DROPs alone: notices may wait for room at the peer */
    uint64_t last_tag;
    uint64_t drain_ns; /* how long what is under way may take to end */
    uint64_t wake_ns;  /* no timer is due before; UINT64_MAX: none */
};

struct xfc_step {
    enum xfc_kind kind;
    struct xfc_task *task;
    const struct xfc_request *request; /* of REQUEST */
    uint32_t first, count;             /* of SUMS: of the plan's; of DROP as in `outs` */
    uint64_t tag;                      /* of a message */
    uint32_t buffer;                   /* of a message: one that no other has that waits */
    uint64_t number;                   /* for xfc_flow_confirm() */
};

void xfc_flow_init(struct xfc_flow *flow, uint64_t drain_ns, struct list *ended);
/* `ring` has room for `depth` entries. */
void xfc_flow_lane(struct xfc_flow *flow, uint32_t lane, struct xfc_entry *ring, uint32_t depth,
                   uint64_t window_bytes);
/* The task is not posted; plan, op, notice, has_sums and deadline are set. */
void xfc_flow_post(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns);
void xfc_flow_cancel(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns);
/* Deadlines. Returns lanes that hold what had to end and is not confirmed in time, as bits: destroy
 * their queue pairs. */
uint32_t xfc_flow_timers(struct xfc_flow *flow, uint64_t now_ns);
/* After a reset of all lanes: none goes on. */
void xfc_flow_fail_all(struct xfc_flow *flow, enum sw_xfer_status status, uint64_t now_ns);

/* ---- lanes.c ---- */

/* What is given to this lane next. False: nothing, or nothing has room. */
bool xfc_flow_next(struct xfc_flow *flow, uint32_t lane, struct xfc_step *step);
/* All up to this number are done. */
void xfc_flow_confirm(struct xfc_flow *flow, uint32_t lane, uint64_t number, uint64_t now_ns);
/* All before this number are done; this one the peer's device refused, so its task ends. The owner
 * then destroys the queue pair and resets the lane. */
void xfc_flow_refused(struct xfc_flow *flow, uint32_t lane, uint64_t number,
                      enum sw_xfer_status status, uint64_t now_ns);
/* The lane's queue pair is gone. Tasks that were to end do; what others had there is stranded. */
void xfc_flow_reset(struct xfc_flow *flow, uint32_t lane, uint64_t now_ns);
/* The peer has ended its side of the lane's earlier queue pairs: what was stranded is given again.
 */
void xfc_flow_settled(struct xfc_flow *flow, uint32_t lane);
/* The peer is to be told to end its side. */
void xfc_flow_drop(struct xfc_flow *flow, uint32_t lane);
/* The answer of that tag. False: the peer answers what was not sent, or twice. `out` is what it
 * answers; call one of the two below for its task, if that is there. */
bool xfc_flow_answered(struct xfc_flow *flow, uint64_t tag, struct xfc_out *out);
void xfc_flow_notice_taken(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns);
/* The sums before `known` are compared. FAULT with that status where it is not OK. */
void xfc_flow_summed(struct xfc_flow *flow, struct xfc_task *task, uint32_t known,
                     enum sw_xfer_status status, uint64_t now_ns);

/* ---- what both sources share ---- */

/* Puts the task where it belongs: it has requests to give, or a message, or neither. */
void xfc_flow_sort(struct xfc_flow *flow, struct xfc_task *task);
/* Ends it where it is done, or was to end, and nothing of it is in a ring. */
void xfc_flow_end_if_quiet(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns);

/* Something is with the lane's queue pair. */
static inline bool xfc_flow_waits(const struct xfc_flow *flow, uint32_t lane)
{
    return flow->lanes[lane].given != flow->lanes[lane].confirmed;
}

#endif
