/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The link to other hosts: queue pairs over the port. Connected ones are the machines of
 * transport/, fed and obeyed here; what a packet does to memory and queues is
 * device/serve/execute's.
 *  - roce.c       the port's life, polls, the engine's part
 *  - handoff.c      whether the engine receives
 *  - announce.c   whether a message follows what a peer does to memory
 *  - deliver.c    packets to queue pairs
 *  - identity.c   whether they are the peer's
 *  - repath.c        when to try another source port
 *  - life.c       of which life of the connection they are
 *  - qp.c         connecting, and sending what machines want sent
 *  - request.c    the requester's side
 *  - respond.c    the responder's side
 *  - closed_qp.c    what is left of a connection that ended by a refusal
 *  - lifeline.c   whether peers' processes live (liveness.c, callers.c)
 *  - death.c      what becomes of queue pairs whose peer has died
 *  - datagram.c   UD
 *  - mad.c        QP 1
 *  - group.c      multicast
 *  - delayed_ack.c     ACKs that may wait
 *  - impair.c     faults on purpose
 *  - account.c    what is counted
 *
 * Locks: cq.poll_lock < port.rx_lock < qp.lock < a batch's lock. Who receives holds rx_lock; so
 * what it found a queue pair by stays as long as it is held.
 */
#ifndef SW_LINK_ROCE_ROCE_H
#define SW_LINK_ROCE_ROCE_H

#include "device/memory/mr_impl.h"
#include "device/queue/counters.h"
#include "device/queue/qp_impl.h"
#include "device/serve/flushing.h"
#include "device/serve/receive.h"
#include "link/faults/live.h"
#include "link/roce/announce.h"
#include "link/roce/handoff.h"
#include "link/roce/lifeline.h"
#include "link/roce/poll_pace.h"
#include "link/roce/port.h"
#include "link/roce/repath.h"
#include "transport/requester.h"
#include "transport/responder.h"

enum { SW_ROCE_LIVES = 6 }; /* former ones, whose packets are dropped: of 16 that are told apart */

/* A connected queue pair; with the QP locked. */
struct sw_roce_qp {
    struct sw_qp *qp;
    struct sw_roce_path path;
    struct {                 /* what it is known by: identity.c */
        bool is_known;       /* it has been heard */
        uint32_t ports[2];   /* UDP source ports of its answers and requests, and 1; 0: none yet */
        uint64_t heard_ns;   /* when it last was */
        uint32_t claim_port; /* from where something came that could be its as well, and 1 */
        uint64_t claim_ns;
    } peer;
    struct {                 /* life.c */
        uint8_t own;         /* the number of this one */
        uint8_t peer_mark;   /* bits of the BTH that number the peer's; 0: nothing heard yet */
        uint8_t past_mark;   /* of its last before this one; 0: none is known */
        uint64_t doubted_ns; /* since when nothing has come but what seems to be older */
    } life;
    struct sw_request *ring; /* of the requester, beside the send queue; NULL: it sends nothing */
    bool receives;
    bool greeted;         /* by a packet of the peer */
    bool reads_due;       /* READs are to be answered */
    bool is_limited;      /* by the rate limit: there may be more to send */
    uint8_t delayed_acks; /* packets whose ACK waits */
    uint8_t mistrusted;   /* messages whose ACK will not wait */
    uint8_t doubts;       /* times that waiting was in vain lately, as far as they count */
    uint8_t echoes;       /* requests of the peer in a row that were followed by one of ours */
    uint64_t reached_ns;  /* when the peer last reached for memory; 0: something was posted since */
    struct sw_announce announce;

    uint32_t posted; /* send queue positions before it were given to the requester */
    uint32_t offset; /* of send queue positions from the requester's */
    bool has_bad;    /* the one at `posted` has a local error, to be told in its turn */
    enum ibv_wc_status bad_status;

    struct sw_receive receive; /* of the message that is coming in */

    bool is_ending; /* once all is said: by a refusal, with this event */
    int end_event;
    struct sw_lifeline *line; /* to the peer's process; NULL: none */
    bool is_met;              /* the peer has been seen to be one of ours */
    uint8_t left_mark;        /* the life of its queue pair that it has ended; 0: none */

    uint64_t ended_ns; /* by that; only what closed_qp.c says is left of it. 0: it lives */

    bool is_parked; /* a demand that is not concluded yet: a FLUSH that goes on */
    struct sw_demand parked;
    struct sw_flushing flushing;

    struct {
        uint64_t marked, cnps_received, rnrs_sent, astray;
        uint64_t told[SW_COUNTER_COUNT]; /* of all the machines', what the device's have already */
    } counts;
    struct sw_repath repath;
    struct sw_roce_qp *next; /* among those that are done with */
    struct sw_requester requester;
    struct sw_responder responder;
};

struct sw_roce {
    struct sw_port port;
    atomic_bool open;
    atomic_bool busy;                   /* packets came to the engine since it last asked */
    uint32_t mads;                      /* that have been received; port.rx_lock held */
    _Atomic uint64_t polled_ns;         /* when a thread of the program last did, ... */
    atomic_bool sleeps;                 /* ... a queue that is armed: it is about to sleep; ... */
    _Atomic uint64_t posted_ns;         /* ... or posted, ... */
    _Atomic int cpu;                    /* ... and on which processor */
    _Atomic uint64_t heard_ns;          /* when somebody last began to receive all that waited */
    _Atomic uint64_t due_ns;            /* when the first timer of a QP runs out, or earlier */
    _Atomic uint64_t timers[SW_MAX_QP]; /* when each QP's does, of those that are listed */
    struct sw_early_pool pool;          /* under rx_lock */
    struct sw_roce_kept *kept;          /* what it is made of */
    _Atomic(struct sw_qp *) qps[SW_MAX_QP]; /* that packets may come for, ... */
    struct sw_qp_set listed;                /* ... and which these are */
    _Atomic(struct sw_roce_qp *) done;      /* to be freed under rx_lock */
    _Atomic uint64_t served_ns;             /* when a peer last reached for memory by itself, and
                                               no message was expected to follow */
    atomic_bool is_attended;                /* a program polls: it receives, or was about to */
    uint64_t timers_ns;                     /* when timers were last run; under rx_lock */
    struct sw_poll_pace pace;               /* under rx_lock */
    _Atomic uint64_t moved_ns;              /* when a packet last came or went */
    _Atomic uint64_t looked_ns;             /* when a poll last looked at the port */
    _Atomic uint64_t returned_ns;           /* when one last came back from yielding */
    atomic_uint connected;                  /* QPs among those that packets may come for */
    struct sw_handoff handoff;              /* the engine's */
    uint64_t tidy_ns;
    atomic_bool watched;
};
extern struct sw_roce sw_roce;

/* roce.c */
void sw_roce_start(void);
void sw_roce_fork_child(void);
/* Opens the port, if it is not open. Negative errno as sw_port_open(); if it `is_needed` and
 * another holds it, a message says who. */
int sw_roce_open(bool is_needed);
/* Receives what waits; rx_lock held. */
void sw_roce_receive_all(uint64_t now_ns);
/* Receives what waits, for whichever QP; a poller of completions does it. */
void sw_roce_poll(bool waits);
/* The program is about to sleep until an event: the engine receives for it. */
void sw_roce_mind(void);
void sw_roce_catch_up(void); /* of struct sw_link_ops */
/* The program posts. */
void sw_roce_note_post(uint64_t now_ns);
/* Whether packets for the QP are looked at. */
bool sw_roce_is_listed(const struct sw_qp *qp);
/* From here on packets for the QP are looked at; and: no longer, nor is anybody doing so. */
void sw_roce_list(struct sw_qp *qp);
void sw_roce_forget(struct sw_qp *qp);
/* When the QP is to be driven, whatever comes; UINT64_MAX: never. */
void sw_roce_set_timer(const struct sw_qp *qp, uint64_t due_ns);
/* The engine shall look at timers then. */
void sw_roce_wake_at(uint64_t due_ns);
/* Freed by whoever receives next. */
void sw_roce_bury(struct sw_roce_qp *r);

/* life.c; with the QP locked. Which of the port's senders the connection uses, another one each
 * time. */
uint8_t sw_roce_life_source(const struct sw_qp *qp);
/* Before the machines are made, which number what they send by it. */
void sw_roce_life_begin(struct sw_roce_qp *r);
void sw_roce_life_end(const struct sw_roce_qp *r);
/* Whether a packet is of a life before, of a Sidewire peer. */
bool sw_roce_life_is_over(struct sw_roce_qp *r, uint8_t mark, uint64_t now_ns);
/* Whether it is of the life that the peer is in, as far as it was heard of. */
bool sw_roce_life_is_peers(const struct sw_roce_qp *r, uint8_t mark);

/* identity.c; with the QP locked. Whether a packet from the peer's address is the peer's, where
 * that is not plain; takes note of what it is known by from then on. */
bool sw_roce_identify(struct sw_roce_qp *r, const struct sw_arrival *arrival,
                      const struct sw_packet *packet, uint64_t now_ns);
/* The same of a congestion notification. */
bool sw_roce_is_notified(const struct sw_roce_qp *r, const struct sw_arrival *arrival);

/* closed_qp.c; with the QP locked. What is left of a connection at its end: NULL, if it did not end
 * by a refusal. */
struct sw_roce_qp *sw_closed_qp_of(const struct sw_roce_qp *r, uint64_t now_ns);
/* Before a packet for it is looked at. */
void sw_closed_qp_age(struct sw_roce_qp *r, uint64_t now_ns);

/* deliver.c; rx_lock held */
/* As struct sw_port has it. */
bool sw_roce_deliver(void *arg, const struct sw_arrival *arrival);
/* A single one that has passed the rules for faults; `qp` NULL: for QP 1 or a group. Returns
 * whether its sender is known. */
bool sw_roce_deliver_passed(struct sw_qp *qp, const struct sw_arrival *arrival,
                            const struct sw_packet *packet);
/* Whom a packet is for, or each of a run: a QP, or (NULL) QP 1 or a group; *packet is the first.
 * False: nobody, or it is no packet. */
bool sw_roce_find_receiver(const struct sw_arrival *arrival, struct sw_packet *packet,
                           struct sw_qp **qp);
/* After the last packet: sends what the last QP has to say, and lets go of it. `is_polled`: its
 * program is about to look at what came. */
void sw_roce_deliver_end(bool is_polled);

/* delayed_ack.c; rx_lock held */
enum { SW_DELAYED_ACK_RUN = 8 }; /* packets that came together, of which the ACK may wait */
/* Whether the ACK of the requests that just came may wait, so many packets and no more than
 * SW_DELAYED_ACK_RUN; `wakes`: the program sleeps until then. The QP is locked. */
bool sw_delayed_ack_defer(struct sw_roce_qp *r, uint32_t packets, bool wakes, uint64_t now_ns);
bool sw_delayed_ack_any_waits(void);
/* Whether there are such that the engine has not seen; without rx_lock: of this thread's own. */
bool sw_delayed_ack_any_unseen(void);
/* The peer has reached for memory: whether the program is expected to answer by a request. And: it
 * has posted one. The QP is locked. */
bool sw_delayed_ack_expects_echo(struct sw_roce_qp *r, uint64_t now_ns);
void sw_delayed_ack_note_echo(struct sw_roce_qp *r, uint64_t now_ns);
/* The engine's part: sends those that have waited for long. Returns when to call again. */
uint64_t sw_delayed_ack_step(uint64_t now_ns);
/* After a poll that found nothing. */
void sw_delayed_ack_note_empty_poll(void);
/* Sends those that wait. `is_late`: the program did not come back for it. */
void sw_delayed_ack_send(bool is_late);
void sw_delayed_ack_forget(const struct sw_qp *qp);
void sw_delayed_ack_fork_child(void);

/* What came of a step. */
enum sw_roce_outcome { SW_ROCE_ALIVE, SW_ROCE_DEAD /* the QP has failed: `r` must not be used */ };

/* death.c; rx_lock held, no QP locked. The process at the other end is dead. */
void sw_roce_end_with_peer(struct sw_lifeline *line);
struct sw_lifeline_departure;
void sw_roce_note_departure(const struct sw_lifeline_departure *departure);
/* With the QP locked: its timer has run out. DEAD: so is the peer, and the QP has failed. */
enum sw_roce_outcome sw_roce_excuse(struct sw_roce_qp *r, uint64_t now_ns);
/* Takes the queue pair's lock: the UDP port by which `qpn` sends to `dest_qpn`; 0: it does not. */
uint16_t sw_roce_source_port(uint32_t qpn, uint32_t dest_qpn);

/* qp.c */
extern const struct sw_qp_ops sw_roce_qp_ops;
/* Sends what the machines want sent, a bounded part, and takes in what has ended by that. */
enum sw_roce_outcome sw_roce_emit(struct sw_roce_qp *r, uint64_t now_ns);

/* request.c */
enum sw_roce_outcome sw_roce_take_progress(struct sw_roce_qp *r,
                                           const struct sw_progress *progress);
/* Gives requests to the requester, executes local ones in their turn. */
enum sw_roce_outcome sw_roce_feed(struct sw_roce_qp *r);
/* After the requester has sent: what of the send queue is under way, and what is complete. */
enum sw_roce_outcome sw_roce_settle(struct sw_roce_qp *r);
/* Fails the request at the head of the send queue. */
enum sw_roce_outcome sw_roce_fail_request(struct sw_roce_qp *r, enum ibv_wc_status status);

/* respond.c */
/* Returns how many packets of the run were dealt with: all, if it is plain, or the first. The QP
 * may have failed by that. */
uint32_t sw_roce_respond(struct sw_roce_qp *r, const struct sw_packet_run *run, uint64_t now_ns);
/* Goes on with what was left. */
enum sw_roce_outcome sw_roce_unpark(struct sw_roce_qp *r, uint64_t now_ns);
/* UC: what came early has waited for what is missing for long enough, and that is not among what
 * waits to be received; rx_lock held. */
void sw_roce_run_gaps(struct sw_roce_qp *r, uint64_t now_ns);
/* The bytes of a READ response; false: they may not be read any more. */
bool sw_roce_read(struct sw_roce_qp *r, const struct sw_emission *emission, struct iovec *out);
void sw_roce_drop_claim(struct sw_roce_qp *r);

/* account.c: brings the device's counters up to date; with the QP locked */
void sw_roce_account(struct sw_roce_qp *r);

/* datagram.c */
enum sw_roce_sent { SW_ROCE_SENT, SW_ROCE_NO_ROUTE, SW_ROCE_BAD_KEY };
enum sw_roce_sent sw_roce_send_datagram(struct sw_qp *qp, uint32_t position);
bool sw_roce_deliver_datagram(struct sw_qp *qp, const struct sw_arrival *arrival,
                              const struct sw_packet *packet);
void sw_roce_deliver_to_group(const struct sw_arrival *arrival, const struct sw_packet *packet);

/* group.c: a multicast GID is an IP group, joined on the interface of each device with QPs in it */
void sw_roce_group_hear(struct sw_netdev *dev, const union ibv_gid *gid);
void sw_roce_group_unhear(struct sw_netdev *dev, const union ibv_gid *gid);
/* The port has been opened. */
void sw_roce_group_open(void);
/* Groups are heard on the loopback, too, where the direct link alone does not bring all. */
void sw_roce_group_hear_loopback(void);
/* What is sent to groups comes to members on this host as well from here on. */
void sw_roce_group_loop(void);
void sw_roce_group_fork_child(void);
/* The IPv4 group that ff0e::ffff:a.b.c.d stands for, as a mapped address. False: it is none. */
/* The device whose interface it is; NULL: none. */
struct sw_netdev *sw_roce_device_of(uint32_t ifindex);
bool sw_roce_group_ipv4(const uint8_t gid[16], uint8_t out[16]);

/* impair.c: only where faults are asked for (sw_faults_live); `qp` NULL: QP 1, a group */
void sw_roce_impair_start(void);
void sw_roce_impair_fork_child(void);
/* Passes a packet that leaves, as the rules say: to the batch, once or twice, or to be held. */
void sw_roce_impair_sent(const struct sw_qp *qp, struct sw_batch *batch,
                         const struct sw_packet *packet, const struct sw_outgoing *out);
/* The same for one that came; rx_lock held. Returns whether its sender is known. */
bool sw_roce_impair_received(struct sw_qp *qp, const struct sw_arrival *arrival,
                             const struct sw_packet *packet);
/* Whether no rule is about packets that come: so many for the QP have passed then. */
bool sw_roce_impair_spares(const struct sw_qp *qp, uint32_t count);
/* Lets go of what was held until now; rx_lock held, no QP locked. */
void sw_roce_impair_release(uint64_t now_ns);
/* Has the engine woken for what is still held; rx_lock held. */
void sw_roce_impair_plan(void);
/* Whether the QP's receives are to be taken for absent. */
bool sw_roce_impair_withholds(const struct sw_qp *qp);

/* The same as sw_roce_identify(), for the most part at once. */
static inline bool sw_roce_is_of_peer(struct sw_roce_qp *r, const struct sw_arrival *arrival,
                                      const struct sw_packet *packet, uint64_t now_ns)
{
    const bool is_plain = arrival->source_port + 1u == r->peer.ports[packet->opcode->is_request] &&
                          packet->bth.reserved7 == r->life.peer_mark;
    if (__builtin_expect(!is_plain, 0))
        return sw_roce_identify(r, arrival, packet, now_ns);
    r->peer.heard_ns = now_ns;
    return true;
}

static inline void sw_roce_add(const struct sw_qp *qp, struct sw_batch *batch,
                               const struct sw_packet *packet, const struct sw_outgoing *out)
{
    if (__builtin_expect(sw_faults_live != NULL, 0))
        sw_roce_impair_sent(qp, batch, packet, out);
    else
        sw_batch_add(batch, out);
}

static inline bool sw_roce_withholds(const struct sw_qp *qp)
{
    return __builtin_expect(sw_faults_live != NULL, 0) && sw_roce_impair_withholds(qp);
}

#endif
