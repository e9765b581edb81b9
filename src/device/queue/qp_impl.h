/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside of queue pairs, for device/ and links. All fields are guarded by qp->lock unless they say
 * otherwise.
 */
#ifndef SW_DEVICE_QUEUE_QP_IMPL_H
#define SW_DEVICE_QUEUE_QP_IMPL_H

#include "base/lock.h"
#include "device/nic/context_impl.h"
#include "device/nic/nic.h"
#include "device/queue/pacer.h"
#include "device/queue/polled.h"
#include "device/queue/qp.h"
#include "device/queue/rq.h"
#include "device/queue/sq.h"
#include "device/queue/srq_impl.h"
#include "device/queue/traffic.h"
#include "device/rules/qp_type.h"
#include "device/rules/target.h"

/* Whether programs poll, on a link where only a call of the kernel shows what comes. */
enum sw_qp_polls {
    SW_QP_POLLS_NOT,
    SW_QP_POLLS,
    SW_QP_POLLS_IN_VAIN, /* nothing has come for a while: pollers let others run */
};

struct sw_qp {
    struct sw_lock lock;
    enum ibv_qp_state state; /* read without the lock by sw_qp_state() */
    enum ibv_qp_type type;
    const struct sw_qp_type *rules;
    const struct sw_qp_ops *link;
    void *link_state;
    struct sw_inside inside; /* of its last connection */

    /* Read without the lock by pollers, to see cheaply whether the QP wants driving. */
    _Atomic(const _Atomic uint32_t *) rx_seq; /* sequence word of the next record from the peer */
    _Atomic uint32_t rx_expect;               /* its value once the record is there */
    /* How many receives a peer that sleeps waits for; and the number that it was rung for. */
    _Atomic(const _Atomic uint32_t *) awaited;
    _Atomic uint32_t awaited_rung;
    atomic_bool tx_pending; /* sends queued or unanswered */
    atomic_bool rx_pending; /* the peer could not be told what was consumed */
    atomic_uint polls_link; /* enum sw_qp_polls */
    bool rests;             /* sw_qp_rest() */
    uint32_t given;         /* members of a group that have the datagram that is sent next */
    bool tx_goes_on; /* it stopped sending for its budget alone: the next turn can be at once */
    bool is_posting; /* its program posts, and rings the engine then if the kick is due */
    bool kick_due;
    bool rx_goes_on;         /* the same of fetching what its peer has asked it to fetch */
    struct sw_polled polled; /* the engine's alone */

    struct sw_sq sq;
    struct sw_cq *send_cq;
    struct sw_cq *recv_cq;
    struct sw_pub_qp *pub;
    uint32_t pd_id;
    uint32_t qpn;
    uint32_t shown_qpn; /* what its peer and its completions call it: qpn but for a stand-in */
    uint32_t index;
    uint32_t ordinal; /* among those the process created, from 1 */

    struct sw_rq rq;              /* entries == 0 with an SRQ */
    struct sw_traffic moved;      /* datagrams, and what its connections before this one moved */
    struct sw_traffic moved_seen; /* by the last reader, with this connection; nic.lock */
    struct sw_srq *srq;
    struct sw_context *ctx;
    struct sw_pd *pd; /* NULL for an XRC target */
    void *owner;

    /* An XRC target; under nic.lock. */
    struct sw_xrcd *xrcd;
    struct sw_qp *domain_next;
    uint32_t opens; /* handles, those of other processes included */
    uint32_t holds; /* those of other processes */
    bool stands_in; /* device/queue/stand_in.h */
    int held;       /* a QP of another process, opened: the descriptor for it; else -1 */

    /* As set by modify. */
    struct ibv_qp_attr attr;
    uint32_t dest_qpn;
    struct sw_pacer pacer; /* while sq.is_paced */
    uint32_t ece_options;  /* ece.h */
    bool ece_is_set;
    bool blocks_own_multicast;
    uint32_t mtu_bytes; /* UD: the longest message, as of RTR */
    atomic_uint groups; /* UD: attached to; no lock needed */
    bool last_wqe_sent;
    bool drained_wanted; /* the program asked to be told when the send queue is drained */
    bool bound_windows;  /* there may be windows of type 2 bound through it; set with the table of
                            regions locked */
    bool in_order;       /* sw_qp_keep_order() */
    bool orphan;         /* belongs to the parent of a forked process */
};

static inline bool sw_qp_has_work(struct sw_qp *qp)
{
    const _Atomic uint32_t *seq = atomic_load_explicit(&qp->rx_seq, memory_order_relaxed);
    return atomic_load_explicit(seq, memory_order_relaxed) ==
               atomic_load_explicit(&qp->rx_expect, memory_order_relaxed) ||
           atomic_load_explicit(&qp->tx_pending, memory_order_relaxed) ||
           atomic_load_explicit(&qp->rx_pending, memory_order_relaxed);
}

/* The Q_Key that a datagram carries. IBTA Vol1 10.2.5: a work request cannot use a privileged one
 * but the QP's own. */
static inline uint32_t sw_qp_sent_qkey(const struct sw_qp *qp, uint32_t given)
{
    return given >> 31 ? qp->attr.qkey : given;
}

static inline enum sw_qp_polls sw_qp_polls_link(struct sw_qp *qp)
{
    return (enum sw_qp_polls)atomic_load_explicit(&qp->polls_link, memory_order_relaxed);
}

/* Whether its last turn ended for its budget alone. With the QP locked. */
static inline bool sw_qp_goes_on(const struct sw_qp *qp)
{
    return qp->tx_goes_on || qp->rx_goes_on;
}

/* Whether a CQ of it is armed: its program may be about to sleep. */
bool sw_qp_is_armed(const struct sw_qp *qp);

/* The engine is to go on at once. On the processor of the thread that posts it would find the QP
 * locked, and sleep, if it were woken before the end of that. Returns whether it will be. With the
 * QP locked.
 */
bool sw_qp_kick_later(struct sw_qp *qp);

/* A QP at rest has no work, and its link wakes it (`rests` false) before it has: neither the engine
 * nor who polls its CQs looks at it. With the QP locked; it is awake to begin with, and at its end.
 */
void sw_qp_rest(struct sw_qp *qp, bool rests);

/* Points rx_seq at a word that never matches, and `awaited` at one that asks for nothing. */
void sw_qp_rx_idle(struct sw_qp *qp);

/* Publishes the QP's entry under a new generation, as of `state`: its own but while it is being
 * disconnected, or SW_PUB_CHANGING. */
void sw_qp_publish(struct sw_qp *qp, uint32_t state);

static inline void sw_qp_set_state(struct sw_qp *qp, enum ibv_qp_state state)
{
    __atomic_store_n(&qp->state, state, __ATOMIC_RELEASE); /* sw_qp_state() reads without lock */
}

/* ERR: disconnects, completes everything queued with IBV_WC_WR_FLUSH_ERR, in order. Idempotent.
 * `event` is an enum ibv_event_type for the program, or -1. */
void sw_qp_fail(struct sw_qp *qp, int event);
/* Before the program ends its connection. Requests that have arrived are executed and acknowledged:
 * hardware has done so by now, and the sender would take silence for a failure. */
void sw_qp_serve_what_came(struct sw_qp *qp);

/* The receive `wr_id`, which is no longer in its queue, ends with IBV_WC_WR_FLUSH_ERR. */
void sw_qp_flush_recv(struct sw_qp *qp, uint64_t wr_id);

/* Whether the next request may be worked on: in SQD one that was begun is finished (IBTA Vol1
 * 10.3.1.5). */
static inline bool sw_qp_may_send(struct sw_qp *qp)
{
    return qp->sq.next != qp->sq.tail && (__builtin_expect(qp->state == IBV_QPS_RTS, 1) ||
                                          (qp->state == IBV_QPS_SQD && sw_sq_has_begun(&qp->sq)));
}

/* To be called when requests were completed in SQD: sends the event if it was asked for and nothing
 * is under way. */
void sw_qp_tell_drained(struct sw_qp *qp);

/* The request at the head of the send queue ends with `status`, an error of its own. Where the type
 * has SQE, receiving goes on and the rest of the send queue is flushed; else the QP fails. */
void sw_qp_fail_send(struct sw_qp *qp, enum ibv_wc_status status);

/* The receive at the head of the queue (own or shared). */
struct sw_recv_claim;
bool sw_qp_take_recv(struct sw_qp *qp, struct sw_recv_claim *out);
/* The same, but a receive shorter than need_bytes stays where it is. */
enum sw_recv_take sw_qp_take_recv_of(struct sw_qp *qp, uint32_t need_bytes,
                                     struct sw_recv_claim *out);

/* A completion on the receive CQ. */
void sw_qp_complete_recv(struct sw_qp *qp, const struct ibv_wc *wc, bool solicited);

/* A region of this PD was deregistered: from here on no sender relies on rq_len_min of its QPs, and
 * no thread of this process still works with the region (what peers ask for is executed here). */
void sw_qp_quiesce_pd(struct sw_pd *pd);

/* The one of this process with that number, or NULL. With the NIC locked. */
struct sw_qp *sw_qp_find(uint32_t qpn);

/* As sw_qp_destroy(), for a handle of another process. */
void sw_qp_release(struct sw_qp *qp);

/* In a forked child: the QP stays its parent's; here it is in ERR for good, with empty queues. */
void sw_qp_fork_child(struct sw_qp *qp);

#endif
