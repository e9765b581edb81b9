/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The link to other hosts: queue pairs over a port. What the port and all queue pairs share.
 *
 *  port/      sockets and packets; knows no queue pairs
 *  liveness/  whether the processes of peers live
 *  qp/        connections: the machines of transport/, fed and obeyed
 *  here       who receives (roce.c, attend.h, handoff.h, signs.h, poll_pace.h); packets to queue
 *             pairs (deliver.h); UD, QP 1 and multicast (datagram.h, mad.h, group.h); faults on
 *             purpose (impair.h)
 *
 * device/serve/execute does what a packet does to memory and queues.
 *
 * Locks: cq.poll_lock < port.rx_lock < qp.lock < a batch's lock. Receivers hold rx_lock; a queue
 * pair found under it stays as long as it is held.
 */
#ifndef SW_LINK_ROCE_ROCE_H
#define SW_LINK_ROCE_ROCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/queue/qp_impl.h"
#include "link/roce/handoff.h"
#include "link/roce/poll_pace.h"
#include "link/roce/port/port.h"
#include "link/roce/port_watch.h"
#include "link/roce/signs.h"
#include "transport/early.h"

struct sw_roce_qp;

struct sw_roce {
    struct sw_port port;
    atomic_bool open;
    atomic_bool busy; /* packets came to the engine since it last asked */
    uint32_t mads;    /* that have been received; port.rx_lock held */
    struct sw_roce_signs signs;
    _Atomic uint64_t heard_ns;          /* when somebody last began to receive all that waited */
    _Atomic uint64_t due_ns;            /* when the first timer of a QP runs out, or earlier */
    _Atomic uint64_t timers[SW_MAX_QP]; /* when each QP's does, of those that are listed */
    struct sw_early_pool pool;          /* under rx_lock */
    struct sw_roce_kept *kept;          /* what it is made of */
    _Atomic(struct sw_qp *) qps[SW_MAX_QP]; /* that packets may come for, ... */
    struct sw_qp_set listed;                /* ... and which these are */
    _Atomic(struct sw_roce_qp *) done;      /* to be freed under rx_lock */
    uint64_t amid_until_ns;                 /* more of a WRITE is expected so long; under rx_lock */
    atomic_bool is_attended;                /* a program polls: it receives, or was about to */
    atomic_bool is_steady;                  /* it has polled for long and runs the timers */
    uint64_t timers_ns;                     /* when timers were last run; under rx_lock */
    struct sw_poll_pace pace;               /* under rx_lock */
    _Atomic uint64_t moved_ns;              /* when a packet last came or went */
    _Atomic uint64_t looked_ns;             /* when a poll last looked at the port */
    _Atomic uint64_t returned_ns;           /* when one last came back from yielding */
    atomic_uint connected;                  /* QPs among those that packets may come for */
    struct sw_handoff handoff;              /* the engine's */
    uint64_t tidy_ns;
    struct sw_port_watch watch;
};
extern struct sw_roce sw_roce;

void sw_roce_start(void);
void sw_roce_fork_child(void);
/* Opens the port, if it is not open. Negative errno as sw_port_open(); if it `is_needed` and
 * another holds it, a message says who. */
int sw_roce_open(bool is_needed);
static inline bool sw_roce_is_open(void)
{
    return atomic_load_explicit(&sw_roce.open, memory_order_acquire);
}
/* How many packets have come and gone, whoever moved them. */
static inline uint64_t sw_roce_packets(void)
{
    return sw_port_counter(&sw_roce.port, SW_PORT_RX_PACKETS) +
           sw_port_counter(&sw_roce.port, SW_PORT_TX_PACKETS);
}
/* Receives what waits; rx_lock held. */
void sw_roce_receive_all(uint64_t now_ns);
/* Hands on what waits here for other processes of this host, unless somebody receives anyway. */
void sw_roce_hand_on(void);
/* Receives what waits, for whichever QP; a poller of completions does it. */
void sw_roce_poll(bool waits);
/* The program is about to sleep until an event: the engine receives for it, unless this thread does
 * (attend.h). */
void sw_roce_mind(void);
/* A thread of the program receives from here on, awake or asleep: no packet wakes the engine. */
void sw_roce_take_over(void);
/* What it does then, and who polls: receives, and runs the timers at times; rx_lock held. Returns
 * how many packets. */
uint32_t sw_roce_take_in(bool all, uint64_t now_ns);
bool sw_roce_expects_packets(uint64_t now_ns);
void sw_roce_catch_up(void); /* of struct sw_link_ops */
/* A QP has a timer, or more to send: the engine is rung, unless a program polls all the time. */
void sw_roce_nudge(void);
/* The program posts. */
void sw_roce_note_post(uint64_t now_ns);
/* Whether packets for the QP are looked at. */
bool sw_roce_is_listed(const struct sw_qp *qp);
/* From here on packets for the QP are looked at; and: no longer, nor is anybody doing so. */
void sw_roce_list(struct sw_qp *qp);
void sw_roce_forget(struct sw_qp *qp);
/* The same as sw_roce_forget() for one that another link has, in the engine. With the NIC locked.
 * False: somebody is in the way; try again. */
bool sw_roce_unlist(struct sw_qp *qp);
/* When the QP is to be driven, whatever comes; UINT64_MAX: never. */
void sw_roce_set_timer(const struct sw_qp *qp, uint64_t due_ns);
/* The engine shall look at timers then. */
void sw_roce_wake_at(uint64_t due_ns);
/* Freed by the next receiver. */
void sw_roce_bury(struct sw_roce_qp *r);

#endif
