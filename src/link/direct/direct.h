/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The direct link: queue pairs between processes of one user on one host. Shared declarations of
 * its parts:
 *  - registry.c   the slot
 *  - engine.c     the thread
 *  - proof.c      whether two processes may look into each other
 *  - attach.c     handshake and segments over the control socket
 *  - survey.c     what all processes have counted
 *  - peer.c       processes we use
 *  - inbox.c      what clients write
 *  - reach.c      mapped / cma access to a peer's memory
 *  - bind.c       QP to QP
 *  - requester.c  sends (onesided.c, twosided.c)
 *  - flush.c      FLUSH
 *  - bounce.c     requests that the target executes
 *  - answer.c     what it says of them
 *  - responder.c  what came in (pull.c)
 *  - datagram_send.c, datagram_receive.c, multicast.c: UD
 *  - domain.c, lane.c, hold.c: XRC between more than two processes
 *  - account.c    what was moved
 *  - direct.c     the link's operations
 */
#ifndef SW_LINK_DIRECT_DIRECT_H
#define SW_LINK_DIRECT_DIRECT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "device/flushing.h"
#include "device/pub.h"
#include "device/receive.h"
#include "device/target.h"
#include "device/traffic.h"
#include "link/direct/inbox.h"
#include "link/gather.h"

struct sw_proof;
struct sw_qp;
struct sw_wqe;

/* Which rungs SIDEWIRE_DIRECT leaves. */
struct sw_direct_modes {
    bool mapped, cma, ring;
};

/* ---- processes whose memory we use ---- */

enum sw_peer_state { SW_PEER_IDLE, SW_PEER_CONNECTING, SW_PEER_READY, SW_PEER_DEAD };

struct sw_peer_segment {
    struct sw_peer_segment *next;
    uint32_t id;
    _Atomic int state;   /* SW_SEGMENT_* */
    bool writable;       /* mapped so */
    bool wants_writable; /* asked for so */
    bool asked_again;    /* since it was not */
    uint8_t *base;       /* address of file offset `offset` */
    uint64_t offset, len_bytes;
    uint8_t *former; /* mapped to read alone before; remembered by queue pairs, perhaps */
};
enum { SW_SEGMENT_WANTED, SW_SEGMENT_ASKED, SW_SEGMENT_MAPPED, SW_SEGMENT_REFUSED };
#define SW_SEGMENT_BUCKETS 256u

struct sw_peer {
    uint32_t slot;
    bool self;
    atomic_int state;
    atomic_uint refs;
    int socket;
    int doorbell;
    struct sw_proof *proof; /* under way; or NULL */
    pid_t pid;
    atomic_uint refusals; /* in a row: it, or we, may not look into the other */
    bool can_map;
    atomic_bool can_cma;
    const struct sw_pub *pub;
    void *inbox;        /* the peer's, for us */
    uint64_t pub_bytes; /* of the tables, that are there */
    uint32_t inbox_blocks;
    _Atomic uint64_t retry_at_ns; /* next connection attempt; 0: none has failed yet */
    pthread_mutex_t lock;         /* segments */
    struct sw_peer_segment *segments[SW_SEGMENT_BUCKETS];
    atomic_bool segments_wanted;
    uint32_t asked; /* segments that are on their way; with the lock */
    struct sw_peer *next;
};

/* ---- what we let a client write ---- */

struct sw_inbox {
    uint32_t slot;
    uint32_t blocks; /* that its memory has */
    int datagrams;   /* index of its ring among those that are received from; -1: none was free */
    int fd;
    uint8_t *base;
    uint64_t client_nonce;  /* 0: nobody attached yet */
    int socket;             /* of the attached client, or -1 */
    atomic_bool dead;       /* its client is gone: no more writers */
    atomic_bool stopped;    /* when last waited for, its client was stopped inside an access */
    _Atomic uint32_t users; /* blocks in use, and who waits for its client */
    uint32_t
        turn; /* where the search for a free block goes on, so that one is not used again soon */
    uint64_t used[SW_INBOX_BLOCKS / 64];
    struct sw_inbox *next;
};

/* ---- one connected queue pair ---- */

struct sw_remote_key { /* a region of the peer that was checked and mapped */
    uint32_t rkey;
    uint32_t access; /* of the region and the QP together */
    uint64_t key_word;
    const _Atomic uint64_t *word;
    uint64_t low, high; /* remote addresses [low, high) */
    uint8_t *bytes;     /* where `low` is in this process */
};

struct sw_direct_qp {
    const struct sw_verdict_rule *rules; /* of the QP's type */
    struct sw_peer *peer;
    struct sw_inbox *inbox;
    struct sw_block *rx; /* in our inbox */
    uint32_t rx_index;
    uint32_t life;    /* unique per binding of this process */
    uint64_t gone_ns; /* when the peer's death was seen */
    bool buried;

    /* XRC, see lane.h. Of an initiator: its lanes, and the one in use, if any. Of a lane: the next
     * one, and an enum sw_lane_state. Of a stand-in: the block that its initiator lends it. */
    struct sw_direct_qp *lanes, *busy;
    struct sw_direct_qp *next_lane;
    int lane_state;
    uint32_t told_block, told_token;

    struct sw_block *tx; /* in the peer's inbox; NULL: not bound */
    uint32_t tx_reader;  /* life of the peer's QP that reads it */
    const struct sw_pub_qp *remote;
    uint64_t remote_word;
    uint32_t remote_qpn, remote_access, remote_pd, remote_recv_cq;
    struct sw_pub_domain remote_domain; /* XRC */
    uint32_t srq_num;  /* XRC: the SRQ that PD and CQ above are of, while its word is this */
    uint64_t srq_word; /* 0: none yet */
    bool notify_all;   /* records for different CQs were written */
    uint32_t remote_rq_entries, remote_rq_stride;
    const uint8_t *remote_rq;
    uint32_t access_seq;
    bool accessing;

    struct sw_remote_key keys[2];
    uint32_t key_turn;

    /* Requester. Positions run freely. */
    uint32_t request_at;    /* next record to write */
    uint32_t served_before; /* serve_at when the last one was written */
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
    uint64_t budget_bytes;
    bool notify; /* a record was written that may wake the peer's CQ */
    bool notify_solicited;
    bool in_doubt; /* whether the last request that recv_used counts takes its receive */
    struct sw_sum {
        uint64_t bytes, packets;
    } sums[2]; /* SW_MOVED_*: our copy; the block may serve others when it is asked for */
    struct sw_traffic of_lanes; /* that are gone */
    enum ibv_wc_status fail_status;
    enum sw_verdict fail_verdict; /* SW_ACK: the failure is local, the peer need not know */

    /* Responder. */
    uint32_t serve_at;     /* next request to read */
    uint32_t serve_bounce; /* end of the bounce space served, and what the peer was told of it */
    uint32_t serve_bounce_told;
    uint32_t serve_told;   /* what the peer was told */
    uint32_t answer_at;    /* next answer to write */
    uint32_t answer_limit; /* first position that may not be written yet */
    uint32_t acks_due;     /* requests done since the last answer */
    uint32_t answer_bounce_at;
    uint32_t read_served;        /* bytes of the READ at the head already sent */
    struct sw_flushing flushing; /* the FLUSH at the head */
    struct sw_receive receive;   /* of the message that is coming in, and its bytes so far */
    uint32_t received_bytes;
    bool serving; /* the responder runs, or has ended the connection */
    uint64_t serve_rnr_ns;
    bool greeted;          /* the peer has said that it begins */
    bool skipping;         /* the rest of an unreliable message that was lost */
    uint32_t lost;         /* messages */
    bool deaf;             /* the peer was told that its retries are used up: nothing more comes */
    struct sw_netdev *dev; /* that counts for it; NULL: the first */
};

/* The peer's QP to the rules of the target: as the one that remote requests come to, and as the
 * owner of its receives. */
static inline struct sw_target_qp sw_remote_side(const struct sw_direct_qp *d)
{
    return (struct sw_target_qp){d->remote_qpn, d->remote_pd, d->remote_access};
}
static inline struct sw_target_qp sw_remote_own(const struct sw_direct_qp *d)
{
    return (struct sw_target_qp){0, d->remote_pd, ~0u};
}

struct sw_direct {
    pthread_mutex_t lock; /* peers, inboxes; leaf but for peer->lock and list_lock */
    /* The list of inboxes, for who waits for all clients: he may be inside an allocator, so nothing
     * is allocated under it. An inbox leaves the list under both locks, without users. */
    struct sw_lock list_lock;
    struct sw_direct_modes modes;
    bool off;
    bool has_packets; /* for those that refuse each other */
    struct sw_peer *peers;
    struct sw_inbox *inboxes;
    int listener;
    atomic_bool work;   /* peers or segments want the engine */
    atomic_uint turns;  /* of the engine */
    atomic_bool served; /* the engine has executed a peer's request since it last looked */
};
extern struct sw_direct sw_direct;

/* registry.c */
int sw_registry_claim(int *listener, uint32_t *slot);
/* A connection to a slot's process, of our user. Or as sw_name_connect(). */
int sw_registry_connect(uint32_t slot);
/* Whether the other end has our user ID; which processes are trusted, proof.h tells. */
bool sw_registry_same_user(int socket, pid_t *pid);
/* Tells all processes that this one has `what`, until the descriptor is closed. The descriptor, or
 * a negative errno. */
#define SW_ANNOUNCED_BYTES 64u /* of `what`, at most */
int sw_registry_announce(const char *what);
/* The same, but only one process can: -EADDRINUSE. */
int sw_registry_announce_alone(const char *what);
/* Slots of the processes that announce it (of "": of all processes), at most `max`, each once.
 * Their number. */
uint32_t sw_registry_announcers(const char *what, uint16_t *slots, uint32_t max);

/* domain.c, hold.c: the link's operations for XRC */
int sw_domain_announce(const struct sw_pub_domain *domain, int oflags);
int sw_hold_open(const struct sw_pub_domain *domain, uint32_t qpn);
int sw_hold_call(int fd, int mask, struct ibv_qp_attr *attr);

/* peer.c */
struct sw_peer *sw_peer_get(uint32_t slot); /* takes a reference; NULL: no memory */
void sw_peer_put(struct sw_peer *peer);
void sw_peer_ring(struct sw_peer *peer);
/* Before a peer becomes ready: has the engine fetch the segments of its latest regions. */
void sw_peer_expect_segments(struct sw_peer *peer);
/* The mapping of a segment's bytes at `file_offset`, or NULL (asks the engine to fetch it). */
uint8_t *sw_peer_segment_at(struct sw_peer *peer, uint32_t id, uint64_t file_offset,
                            uint64_t len_bytes, bool writable, bool *refused);
void sw_peer_segment_free(struct sw_peer_segment *segment);
/* Whether the process of a slot and this one may not have each other's memory (proof.h). If the two
 * have not met yet this waits until they have, five seconds at most. */
bool sw_peer_is_refused(uint32_t slot);
enum sw_standing {
    SW_STANDING_UNKNOWN,
    SW_STANDING_ACCEPTED,
    SW_STANDING_REFUSED,
    SW_STANDING_GONE
};
/* The same of a peer that is held, as far as it is known by now. */
enum sw_standing sw_peer_standing(struct sw_peer *peer);
/* True if it may be freed: gone or never reached, and no QP refers to it; direct.lock held. The
 * engine does it. */
bool sw_peer_unused(const struct sw_peer *peer);
void sw_peer_free(struct sw_peer *peer);

/* inbox.c */
struct sw_inbox *sw_inbox_get(uint32_t slot); /* direct.lock held */
/* True if it may be freed; direct.lock held. The engine does it. */
bool sw_inbox_unused(const struct sw_inbox *inbox);
/* Takes the inbox that *at refers to out of the list if it is unused; direct.lock held. */
bool sw_inbox_unlink_unused(struct sw_inbox **at);
void sw_inbox_free(struct sw_inbox *inbox);
/* Whether the process of a slot is attached here, so that its datagrams come by the direct link. */
bool sw_inbox_has_client(uint32_t slot);
/* A zeroed block for a QP towards that slot. */
int sw_inbox_take(uint32_t slot, struct sw_inbox **inbox, uint32_t *index);
void sw_inbox_give(struct sw_inbox *inbox, uint32_t index);
/* Waits until the client's access section in a block is over; false if it went on for too long. */
bool sw_inbox_wait(struct sw_inbox *inbox, uint32_t index);
void sw_inbox_wait_all(void);

/* attach.c: engine side of the control protocol */
uint64_t sw_attach_step(uint64_t now_ns); /* connects, asks for segments; when to call again
                                             (UINT64_MAX: when kicked) */
void sw_attach_accept(void);
struct sw_newcomer;
void sw_attach_meet(int fd); /* a connection to us: has it prove that it may ask */
void sw_attach_prove(struct sw_newcomer *newcomer);
void sw_attach_greet(int fd); /* it has */
void sw_attach_end_proof(struct sw_peer *peer);
void sw_attach_fork_child(void);
void sw_attach_from_client(struct sw_inbox *inbox);
void sw_attach_from_peer(struct sw_peer *peer);
bool sw_attach_has_hung_up(int fd);
/* For who waits for a peer that is ready: whether its process has ended, which the engine may have
 * got no processor to see. It counts as dead from then on. */
bool sw_attach_is_gone(struct sw_peer *peer);
/* The process has ended, though its socket may not be closed yet. */
bool sw_peer_has_ended(const struct sw_peer *peer);
void sw_attach_segment_gone(uint32_t id);
struct sw_join;
bool sw_attach_join(struct sw_peer *peer, const struct sw_join *join); /* false: not now */

/* bind.c */
/* Our side of a connection to a QP of that slot (0: of nobody), for whom a block is taken. */
int sw_bind_open(struct sw_qp *qp, uint32_t slot, struct sw_direct_qp **out);
void sw_bind_close(struct sw_direct_qp *d);
/* It is the QP's connection from here on. */
void sw_bind_begin(struct sw_qp *qp, struct sw_direct_qp *d);
int sw_bind_connect(struct sw_qp *qp);
/* For an unreliable connection: a new one to the same peer, who has ended its own. Posted receives
 * stay; what is under way is lost. Frees *d; false: nothing was done. */
bool sw_bind_renew(struct sw_qp *qp, struct sw_direct_qp *d);
/* Whether the life of the peer that has sent what waits here has ended: it wants no answer. Only an
 * unreliable one may be asked for it. */
bool sw_bind_is_over(const struct sw_qp *qp, const struct sw_direct_qp *d);
/* Whether the peer is about to be connected to us, or still to an earlier life of ours, which it
 * will learn is over. */
bool sw_bind_is_awaited(const struct sw_qp *qp, const struct sw_direct_qp *d);
void sw_bind_disconnect(struct sw_qp *qp);
/* The peer's process is there and has been spoken to, but its engine has not had its turn yet (or
 * ours has not). Hardware would have answered, so this is not time without an answer. */
bool sw_bind_is_being_attached(const struct sw_peer *peer);
/* Opens an access section if the QP is bound to its peer; false: not now (and nothing is open). */
bool sw_bind_enter(struct sw_qp *qp, struct sw_direct_qp *d);
void sw_bind_leave(struct sw_direct_qp *d);
/* The same, and what was written is visible before anything is read afterwards. */
void sw_bind_leave_fenced(struct sw_direct_qp *d);
/* No QP uses mappings of the peer's segments after this. */
void sw_bind_forget_keys(struct sw_peer *peer);
/* The peer's process is gone: ends the QP as that does. The QP is locked. */
void sw_bind_bury(struct sw_qp *qp, struct sw_direct_qp *d);
/* Fails the QPs of processes that died and frees what is left of them; when to call again. */
uint64_t sw_bind_reap(uint64_t now_ns);

/* requester.c: all of these inside an access section unless said otherwise */
void sw_requester_run(struct sw_qp *qp, struct sw_direct_qp *d); /* opens its own section */
/* The same for who has just posted: leaves answers to pollers and to the engine. */
void sw_requester_push(struct sw_qp *qp, struct sw_direct_qp *d);

/* Leaves a section in which requests were started: tells what was moved, and rings the peer where
 * it waits for an event of what was sent. */
void sw_requester_leave(struct sw_direct_qp *d);

/* ahead.c: executes the front of a list that is not queued yet, as far as it may skip the queue
 * (sw_sq_may_skip()) and is done, or sent, at once; returns how many. *sent: of these, the last so
 * many wait for an answer. Opens its own section. */
uint32_t sw_ahead_run(struct sw_qp *qp, struct sw_direct_qp *d, const struct ibv_send_wr *wr,
                      uint32_t most, uint32_t *sent);

/* One step of a request. */
enum sw_step {
    SW_STEP_DONE,    /* completed successfully */
    SW_STEP_LOST,    /* likewise, though the target never sees it: an unreliable message */
    SW_STEP_SENT,    /* the target will answer */
    SW_STEP_BLOCKED, /* try again later */
    SW_STEP_FAILED,  /* d->fail_status, d->fail_verdict */
};
enum sw_step sw_step_local_error(struct sw_direct_qp *d, enum ibv_wc_status status);
/* FAILED, or LOST where the QP's type refuses nothing. */
enum sw_step sw_step_refused(struct sw_direct_qp *d, enum sw_verdict verdict);
/* Whether the next request in line can read what it is to send: SENDs and WRITEs read their memory
 * before anything of them can reach the target, so a bad key of theirs comes before any refusal
 * (IBTA Vol1 9.9.2.2). A READ or atomic touches local memory only with the answer. */
bool sw_step_is_sound(struct sw_qp *qp);
/* The target refuses that request, or it has failed at home. */
enum sw_step sw_step_refused_next(struct sw_qp *qp, struct sw_direct_qp *d,
                                  enum sw_verdict verdict);

/* For an XRC initiator: takes PD and CQ of the SRQ that a request names. false: the target has none
 * of that number in its domain. Inside an access section. */
bool sw_bind_name_srq(struct sw_direct_qp *d, uint32_t srq_num);

/* record.c: the request ring */
/* The record to fill, or NULL while the ring has no room for `slots` (FATAL may take the reserved
 * last one). */
struct sw_record *sw_record_reserve(struct sw_direct_qp *d, uint32_t slots, bool fatal);
/* Makes it valid; `wakes`: it ends in a completion of the peer's receive CQ. */
void sw_record_publish(struct sw_direct_qp *d, struct sw_record *record, uint32_t slots,
                       bool wakes);
void sw_record_fatal(struct sw_direct_qp *d, enum sw_verdict verdict);

/* reach.c: direct access to the peer's memory */
enum sw_reach { SW_REACH_DIRECT, SW_REACH_WAIT, SW_REACH_RING };
/* Whether [addr, addr+len) of a region (checked before) can be accessed directly. */
enum sw_reach sw_reach_probe(struct sw_peer *peer, const struct sw_pub_mr *mr, uint64_t addr,
                             uint64_t len_bytes);
/* Moves bytes [*done, len) of the gather from or to addr, at most the budget. */
enum sw_step sw_reach_move(struct sw_direct_qp *d, const struct sw_gather *gather,
                           uint64_t gather_offset, const struct sw_pub_mr *mr, uint64_t addr,
                           uint64_t len_bytes, bool to_local, uint32_t *done);
/* Mapped address of a range, or NULL. */
uint8_t *sw_reach_mapped(struct sw_peer *peer, const struct sw_pub_mr *mr, uint64_t addr,
                         uint64_t len_bytes, bool *wait);
/* The bytes of an access went to nowhere: the peer has made its file shorter (base/fault.h). */
enum sw_step sw_reach_lost(struct sw_direct_qp *d);
/* After a copy between the two, where something was lost at some time. */
enum sw_step sw_reach_judge(struct sw_direct_qp *d, const void *remote, const void *local);
/* Fast path: the remembered mapping of a region, if it covers the access and is still valid. */
uint8_t *sw_reach_remembered(struct sw_direct_qp *d, uint32_t rkey, uint64_t addr,
                             uint64_t len_bytes, uint32_t need);
void sw_reach_remember(struct sw_direct_qp *d, uint32_t rkey, const struct sw_pub_mr *mr,
                       uint64_t word, uint64_t addr);

/* onesided.c, twosided.c, bounce.c */
enum sw_step sw_onesided_start(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                               uint32_t position);
enum sw_step sw_twosided_start(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                               uint32_t position);
enum sw_step sw_bounce_start(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                             uint32_t position);
/* A short SEND that the target executes, in one go, with no space to be given back: at most
 * SW_WHOLE_BYTES. SENT, or BLOCKED: the ring has no room. */
struct sw_whole {
    uint8_t flags; /* SW_REC_* */
    uint32_t imm;  /* or the key to invalidate */
    uint32_t srq_num;
};
enum sw_step sw_send_whole(struct sw_qp *qp, struct sw_direct_qp *d, const struct sw_gather *gather,
                           uint32_t len_bytes, const struct sw_whole *whole);
/* A request that carries no bytes. */
enum sw_step sw_bounce_ask(struct sw_direct_qp *d, struct sw_wqe *wqe, enum sw_record_kind kind);
/* Reads answers; false if one was a refusal of the request at the head (d->fail_*). */
bool sw_bounce_collect(struct sw_qp *qp, struct sw_direct_qp *d);

/* pull.c: a message that the target fetches from the initiator's memory, where the target must
 * execute it and it is long: one copy instead of two. */
bool sw_pull_suits(struct sw_qp *qp, const struct sw_direct_qp *d, uint32_t position);
/* The target's part: moves what is left of the list's bytes into the claimed receive, at most the
 * budget. Inside an access section. */
enum sw_step sw_pull(struct sw_direct_qp *d, const struct ibv_sge *list, uint32_t count);

/* flush.c */
enum sw_step sw_flush_start(struct sw_direct_qp *d, struct sw_wqe *wqe);
/* twosided.c: a short message travels in the ring itself, one cache line for up to 48 bytes. At
 * most SW_INLINE_BYTES, and a receive waits that has room for it. BLOCKED: the ring has none. */
enum sw_step sw_send_inline(struct sw_direct_qp *d, const struct sw_gather *gather,
                            uint32_t len_bytes, uint8_t flags, uint32_t imm);

/* responder.c: returns whether there was anything. Opens its own sections. */
bool sw_responder_run(struct sw_qp *qp, struct sw_direct_qp *d);

/* direct.c */
int sw_direct_start(void);
void sw_direct_fork_child(void);
extern const struct sw_qp_ops sw_direct_qp_ops;
extern const struct sw_qp_ops sw_direct_gated_ops; /* with faults: gate.h */
/* This link's part of a QP; NULL: it is not connected, or by another link. With the QP locked. */
struct sw_direct_qp *sw_direct_of(const struct sw_qp *qp);
/* Sends and receives of one QP, a bounded step; returns whether anything was received. */
bool sw_direct_drive(struct sw_qp *qp);

#endif
