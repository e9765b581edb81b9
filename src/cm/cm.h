/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection manager of InfiniBand: a machine without clock, I/O, lock, thread or memory of
 * its own. MADs and the time go in, MADs and events come out. IBTA Vol1 chapter 12; docs/cm.md
 * has its rules.
 *
 *   active:  connect  -> REQ;  event REP -> ready (RTU), or reject
 *   passive: event REQ -> (mra) accept (REP), or reject;  event RTU
 *   either:  disconnect -> DREQ, event DREP;  event DREQ -> disconnected (DREP);  event EXIT
 *   SIDR:    resolve -> SIDR_REQ, event SIDR_REP;  event SIDR_REQ -> answer (SIDR_REP)
 *
 * The user gives each connection a `struct sw_cm_id` and each service it listens to a `struct
 * sw_cm_listener`, both in memory of its own, and serializes all calls. Every call that may fail
 * returns 0, or a negative errno and has done nothing:
 *
 *   -EINVAL     not in this state; or more private data than fits
 *   -EADDRINUSE listen: the service id is taken
 *   -ENOSPC     no local communication id is free
 *
 * Private data may be given as NULL and 0. Times are nanoseconds of any monotonic clock.
 */
#ifndef SW_CM_CM_H
#define SW_CM_CM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/siphash.h"
#include "cm/timer.h"
#include "wire/cm_mad.h"

struct sw_cm;
struct sw_cm_id;
struct sw_cm_listener;

/*
 * Where a MAD goes or came from, always seen from here. The machine only compares remote_gid (with
 * the CA GUID it tells nodes apart), looks for the slot in sw_cm_gone(), and hands the path of an
 * id to send(); the rest is between sender and receiver.
 */
struct sw_cm_path {
    uint8_t local_gid[16], remote_gid[16]; /* network order; IPv4 as ::ffff:a.b.c.d */
    uint32_t ifindex;                      /* of the netdev */
    uint16_t pkey;
    uint16_t slot; /* of the registry: a process of this network namespace; 0: another host, or
                      not known yet */
    uint8_t traffic_class, hop_limit;
    uint32_t attempt; /* what is said again has another one each time, and may go another way */
};

enum sw_cm_state {
    SW_CM_IDLE, /* as initialized, or all is over */
    SW_CM_REQ_SENT,
    SW_CM_REQ_RCVD, /* ... or MRA sent since */
    SW_CM_REP_SENT,
    SW_CM_REP_RCVD, /* ... or MRA sent since */
    SW_CM_ESTABLISHED,
    SW_CM_DREQ_SENT,
    SW_CM_DREQ_RCVD,
    SW_CM_TIMEWAIT, /* over, but what comes late is still answered, and QPN and comm id are taken */
    SW_CM_SIDR_REQ_SENT,
    SW_CM_SIDR_REQ_RCVD,
    SW_CM_STATE_COUNT
};
const char *sw_cm_state_name(enum sw_cm_state state);

enum sw_cm_event_kind {
    SW_CM_EVENT_REQ,      /* passive, after incoming(): accept() or reject(), now or later */
    SW_CM_EVENT_REP,      /* active: ready() or reject(), now or later */
    SW_CM_EVENT_RTU,      /* passive: connected; without message: by established() */
    SW_CM_EVENT_REJ,      /* the connection does not come to be, or, from a peer that never heard
                             our RTU, is no more; the id is IDLE, or in TIMEWAIT */
    SW_CM_EVENT_MRA,      /* the peer asks for time, which it gets */
    SW_CM_EVENT_TIMEOUT,  /* the peer did not answer; `about` says what. REQ, SIDR_REQ: IDLE. REP:
                             TIMEWAIT. DREQ: TIMEWAIT, take it for disconnected. */
    SW_CM_EVENT_DREQ,     /* the peer disconnects: the QP to ERR, then disconnected(). Without
                             message: it is gone. */
    SW_CM_EVENT_DREP,     /* it has agreed to ours, or its own DREQ crossed ours, or it knows of
                             no connection any more: disconnected; the message may be NULL */
    SW_CM_EVENT_STALE,    /* the peer has forgotten the connection (it uses the QPN for another):
                             the QP to ERR; a DREQ is on its way, and DREP or TIMEOUT follows */
    SW_CM_EVENT_EXIT,     /* TIMEWAIT is over, the id IDLE: the QP may be used again */
    SW_CM_EVENT_SIDR_REQ, /* passive, after incoming(): answer() */
    SW_CM_EVENT_SIDR_REP, /* the id is IDLE */
    SW_CM_EVENT_COUNT
};
const char *sw_cm_event_name(enum sw_cm_event_kind kind);

/* Valid during the call. */
struct sw_cm_event {
    enum sw_cm_event_kind kind;
    enum sw_cm_attribute about;          /* TIMEOUT: what remained without answer */
    const struct sw_cm_message *message; /* what came; NULL: nothing did */
    const struct sw_cm_path *path;       /* that of the message, or of the id */
};

/* What the machine asks of its user. `user` is that of sw_cm_init(). */
struct sw_cm_ops {
    /* Sends a MAD, or loses it. The bytes are valid during the call. Must not call the machine. */
    void (*send)(void *user, const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES]);

    /*
     * A REQ or SIDR_REQ came for a listener, and it is no duplicate. Returns an id that has been
     * initialized and nothing else (its event follows at once); NULL: it is refused for *reason
     * (enum sw_cm_reason for a REQ, enum sw_cm_sidr_status for a SIDR_REQ; set to
     * NO_RESOURCES and REJECTED before the call), or dropped in silence if that is 0, so that
     * the peer tries again. Must not call the machine but for sw_cm_id_init(), and for sw_cm_drop()
     * and sw_cm_id_destroy() of a request that makes room.
     */
    struct sw_cm_id *(*incoming)(void *user, struct sw_cm_listener *listener,
                                 const struct sw_cm_path *path, const struct sw_cm_message *message,
                                 uint16_t *reason);

    /* Any call may be made from within, about any id, but receive() and tick(). */
    void (*event)(void *user, struct sw_cm_id *id, const struct sw_cm_event *event);

    /* The memory of a destroyed id is the user's again; once for each sw_cm_id_destroy(), perhaps
     * from within. Must not call the machine. */
    void (*released)(void *user, struct sw_cm_id *id);
};

struct sw_cm_config {
    uint64_t ca_guid; /* of this node: told in REQ and REP */
    uint16_t slot;    /* 1..2046: the top 11 bits of all local communication ids */
    /* Ids and transactions follow from it, and where the tables have what strangers name: secret,
     * and another for each life of a process. */
    struct sw_siphash_key key;
    /* A message that is not answered is sent again after this time, then after twice, ..., at most
     * after the response timeout that the protocol has for it. 0: always after that one. */
    uint64_t resend_ns;
    uint64_t timewait_min_ns; /* how long TIMEWAIT lasts at least; 0: as the path asks, that is
                                 2^n * 4.096 us, n the local ACK timeout of the REQ */
    uint64_t timewait_max_ns; /* and at most; 0: SW_CM_WAIT_MAX_NS */
};

/*
 * What strangers can make a machine keep, whatever they say (docs/security.md). A peer of this
 * host (path.slot) is no stranger.
 */
enum {
    /* Requests that wait for an answer of the user, or for the first word after a REP: in all,
     * and from the addresses of one bucket. More are dropped; a peer that means it asks again. */
    SW_CM_ASKING_MAX = 4096,
    SW_CM_ASKING_EACH_MAX = 1024,
    SW_CM_SOURCES = 1024, /* buckets */
    /* Answers remembered for destroyed ids: of one address they share a set. */
    SW_CM_REPLY_SETS = 32,
    SW_CM_REPLY_WAYS = 32,
    SW_CM_LINGER_MAX = 1024, /* destroyed ids in TIMEWAIT */
    SW_CM_PAST_MAX = 1024,   /* connections that are over, whose REQs may still be on their way */
    /* REPs for one REQ, until the peer has shown that it hears. */
    SW_CM_REPS_EACH = 3,
    SW_CM_COPIES_MAX = 4, /* of a message without an answer that leave at a time */
};

/* No peer makes us wait longer than that for one answer. */
#define SW_CM_WAIT_MAX_NS 70000000000ull

/* Counted by message: [attribute - SW_CM_REQ]. */
enum { SW_CM_ATTRIBUTE_COUNT = SW_CM_APR - SW_CM_REQ + 1 };
struct sw_cm_counts {
    uint64_t sent[SW_CM_ATTRIBUTE_COUNT]; /* the first time */
    uint64_t sent_again[SW_CM_ATTRIBUTE_COUNT];
    uint64_t received[SW_CM_ATTRIBUTE_COUNT];
    uint64_t duplicates[SW_CM_ATTRIBUTE_COUNT]; /* of those received */
    uint64_t malformed;                         /* no CM messages */
    uint64_t strays;                            /* about no connection here, or out of place */
    uint64_t crowded;                           /* requests dropped, as too many waited */
};

struct sw_cm_link { /* of a chain of a hash table */
    struct sw_cm_link *next, **back;
};

struct sw_cm_listener {
    uint64_t service_id, mask;
    void *user;
    struct sw_cm_link link; /* below: the machine's */
    bool listening;
};

/* To be read, but for `user`. */
struct sw_cm_id {
    void *user;
    enum sw_cm_state state;
    uint32_t local_comm_id, remote_comm_id; /* SIDR: the request id is either */
    uint32_t local_qpn, remote_qpn;         /* as told in REQ and REP; 0: not known */
    uint64_t remote_ca_guid;
    struct sw_cm_path path; /* as given or that of the REQ, then that of the first answer */
    uint64_t service_id;
    bool active;   /* we asked */
    bool mra_sent; /* in REQ_RCVD, REP_RCVD: the peer has been asked to wait */
    /* Below: the machine's. */
    bool destroyed, mra_received, local_known, remote_known, remote_qpn_known, is_sidr;
    bool is_xrc, has_alternate;
    uint8_t retries_max, responder_resources; /* of the REQ */
    bool is_heard;                            /* the peer has answered to what we said */
    uint8_t reps_left;                        /* that may still be said before that */
    uint16_t copies, refusals; /* of a REQ: how often it was said, and that nobody listens */
    uint16_t source;           /* bucket + 1 of the peer that asks, while it is counted there */
    uint64_t response_ns, resend_ns, deadline_ns, timewait_ns, peer_response_ns;
    uint64_t request;     /* transaction of the REQ or SIDR_REQ */
    uint64_t transaction; /* of what is being asked or answered */
    struct sw_cm *cm;
    struct sw_cm_timer timer;
    struct sw_cm_link local_link, remote_link, qpn_link;
    struct sw_cm_id *older, *newer; /* of those that linger */
    bool lingers;
    /* What was said last: sent again when it is due, or was not heard. 0: nothing. */
    enum sw_cm_attribute last_attribute;
    uint8_t last[SW_MAD_BYTES];
};

/* What an id said last, which is destroyed: said again to a peer that asks again. */
struct sw_cm_reply {
    uint64_t until_ns, span_ns;
    uint64_t request, remote_ca_guid;
    uint32_t remote_comm_id;
    bool is_sidr;
    enum sw_cm_attribute attribute; /* 0: nothing was, and is, said */
    uint8_t remote_gid[16];
    uint8_t mad[SW_MAD_BYTES];
};

enum { SW_CM_BUCKETS = 4096 };

/* The REQ of a passive connection that is over. */
struct sw_cm_past {
    uint64_t mark; /* a keyed hash of it */
    uint64_t until_ns;
};

struct sw_cm {
    struct sw_cm_config config;
    const struct sw_cm_ops *ops;
    void *user;
    struct sw_cm_counts counts;
    uint32_t id_count; /* ids with anything of theirs in the machine, destroyed ones included */
    uint64_t comms_drawn, transactions_drawn; /* of the sequences that follow from the key */
    uint32_t asking_count;
    uint16_t asking[SW_CM_SOURCES]; /* of them */
    uint32_t linger_count;
    struct sw_cm_id *linger_oldest, *linger_newest;
    struct sw_cm_timers timers;
    struct sw_cm_link *masked; /* listeners with a mask that has holes */
    struct sw_cm_link *listeners[SW_CM_BUCKETS], *by_local[SW_CM_BUCKETS],
        *by_remote[SW_CM_BUCKETS], *by_remote_qpn[SW_CM_BUCKETS];
    uint8_t reply_count[SW_CM_REPLY_SETS], reply_next[SW_CM_REPLY_SETS];
    uint32_t past_count, past_next;
    /* The last two, and untouched until they are needed. */
    struct sw_cm_reply replies[SW_CM_REPLY_SETS][SW_CM_REPLY_WAYS];
    struct sw_cm_past past[SW_CM_PAST_MAX];
};

/* `ops` must live as long as the machine. */
void sw_cm_init(struct sw_cm *cm, const struct sw_cm_config *config, const struct sw_cm_ops *ops,
                void *user);

/* Forgets everything in silence: no MAD, no event, no released(). The memory of all ids and
 * listeners is free to be used. For the child after fork, and the end of the process. */
void sw_cm_forget(struct sw_cm *cm);

/* How many requests wait that came from the address, and such as share its bucket. */
uint32_t sw_cm_asking_from(const struct sw_cm *cm, const struct sw_cm_path *path);

/* REQ_RCVD, SIDR_REQ_RCVD: forgets the request without a word, as if it had been lost, and the
 * user has the memory at once. Its peer may ask again. */
int sw_cm_drop(struct sw_cm *cm, struct sw_cm_id *id);

/* The process a local communication id (of either end) names. */
static inline uint16_t sw_cm_slot_of(uint32_t comm_id)
{
    return (uint16_t)(comm_id >> 21);
}

/* Which slot's process a MAD is to be handed to; 0: the listener's (REQ and SIDR_REQ), or nobody
 * (no message of CM). */
uint16_t sw_cm_addressee(const uint8_t *mad, size_t len);
/* Whether it is a REQ or SIDR_REQ; then sets the service that it asks for. */
bool sw_cm_asks(const uint8_t *mad, size_t len, uint64_t *service_id);

/* A MAD has come. `len` other than SW_MAD_BYTES is refused like anything else that is no message
 * of CM: counted, and what it was is returned. */
enum sw_cm_mad_fault sw_cm_receive(struct sw_cm *cm, const struct sw_cm_path *path,
                                   const uint8_t *mad, size_t len, uint64_t now_ns);

/* When tick() has something to do; UINT64_MAX: never. Changes with every other call. */
uint64_t sw_cm_due_ns(const struct sw_cm *cm);
void sw_cm_tick(struct sw_cm *cm, uint64_t now_ns);
/* The id's last message has left once more, by another way than send(). */
void sw_cm_count_copy(struct sw_cm_id *id);

/* REQs and SIDR_REQs whose service id is `service_id` in the bits of `mask` come to this listener;
 * UINT64_MAX: in all bits. One listener a service id: incoming() may decide that another is
 * meant. */
int sw_cm_listen(struct sw_cm *cm, struct sw_cm_listener *listener, uint64_t service_id,
                 uint64_t mask, void *user);
/* The ids that came by it live on. Nothing happens if it does not listen. */
void sw_cm_unlisten(struct sw_cm *cm, struct sw_cm_listener *listener);

/* The process of this host that had the slot is gone: its connections end at once, as if it had
 * disconnected (event DREQ, without message) or not answered (TIMEOUT, or REJ for a timeout). */
void sw_cm_gone(struct sw_cm *cm, uint16_t slot, uint64_t now_ns);
/* The same of a process of another host, that has the slot there and this GID: of this id, if its
 * connection is to that one. The id may be gone then. */
void sw_cm_gone_far(struct sw_cm *cm, struct sw_cm_id *id, const uint8_t gid[16], uint16_t slot,
                    uint64_t now_ns);

void sw_cm_id_init(struct sw_cm_id *id, void *user);

/* The program ends, and may not be here to say its DREQs again in time: how many of those to other
 * hosts have no answer. `again`: each of them is said once more, now. */
uint32_t sw_cm_dreqs_unanswered(struct sw_cm *cm, bool again);

/*
 * Ends whatever the id is about, in the way the peer expects (REJ of a connection under way, DREQ
 * of one that is there, a refusal of a SIDR_REQ). No event comes for it any more. Its memory
 * belongs to the machine until released(): it may have to answer what comes late, or send its DREQ
 * again.
 */
void sw_cm_id_destroy(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns);

/*
 * Sends a REQ from an id that is IDLE. The machine sets local_comm_id and local_ca_guid of `req`;
 * all else is sent as it is: the primary path (GIDs as in `path`), service id, QPN, private data,
 * ... . The REQ is sent up to 1 + req->max_cm_retries times, each after
 * 2^req->remote_cm_response_timeout and twice 2^(req->primary.local_ack_timeout - 1) times 4.096 us
 * (and more often: config.resend_ns).
 */
int sw_cm_connect(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_path *path,
                  const struct sw_cm_req *req, uint64_t now_ns);

/* REQ_RCVD, REP_RCVD: asks the peer to wait for 2^timeout * 4.096 us before it does anything. */
int sw_cm_mra(struct sw_cm *cm, struct sw_cm_id *id, uint8_t timeout, const void *private_data,
              size_t len, uint64_t now_ns);

/* REQ_RCVD: sends a REP. The machine sets the comm ids and local_ca_guid of `rep`; the initiator
 * depth is at most the responder resources of the REQ. */
int sw_cm_accept(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_rep *rep,
                 uint64_t now_ns);

/* REP_RCVD: sends an RTU; connected. */
int sw_cm_ready(struct sw_cm *cm, struct sw_cm_id *id, const void *private_data, size_t len,
                uint64_t now_ns);

/* REP_SENT: the QP has received something (IBV_EVENT_COMM_EST), so the RTU is on its way or lost:
 * connected, event RTU. Any other state: nothing happens, 0. */
int sw_cm_established(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns);

/* REQ_SENT to REP_RCVD: no connection. `info` is the ARI, up to SW_CM_INFO_MAX bytes. Then the id
 * is in TIMEWAIT, as the peer might ask again. In REQ_SENT it is IDLE at once, and the peer, whose
 * id is not known yet, is told nothing but that we gave up (reason 4). */
int sw_cm_reject(struct sw_cm *cm, struct sw_cm_id *id, uint16_t reason, const void *info,
                 size_t info_len, const void *private_data, size_t len, uint64_t now_ns);

/* ESTABLISHED: sends a DREQ. */
int sw_cm_disconnect(struct sw_cm *cm, struct sw_cm_id *id, const void *private_data, size_t len,
                     uint64_t now_ns);

/* DREQ_RCVD: sends the DREP; TIMEWAIT, event EXIT when it is over. */
int sw_cm_disconnected(struct sw_cm *cm, struct sw_cm_id *id, const void *private_data, size_t len,
                       uint64_t now_ns);

/* Sends a SIDR_REQ from an id that is IDLE, up to 1 + retries times, each after timeout_ns. The
 * machine sets the request id of `req`. */
int sw_cm_resolve(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_path *path,
                  const struct sw_cm_sidr_req *req, uint64_t timeout_ns, uint8_t retries,
                  uint64_t now_ns);

/* SIDR_REQ_RCVD: sends the SIDR_REP. The machine sets request and service id of `rep`. Then the id
 * is in TIMEWAIT: the same request is answered in the same way. */
int sw_cm_answer(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_sidr_rep *rep,
                 uint64_t now_ns);

#endif
