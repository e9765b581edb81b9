/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The reference model of the random test: what queue pairs, receives and memory of a few processes
 * must look like after each request, written from the specification (IBTA Vol1 9.7, 10.2, 11.6)
 * alone. Requests of one list take effect one after the other; lists of one round never touch the
 * same bytes: each direction of a connection has lanes of its own in the arenas. Every process
 * keeps the same model and carries out only its own part.
 */
#ifndef SW_TESTS_INTEGRITY_MODEL_H
#define SW_TESTS_INTEGRITY_MODEL_H

#include "verbs_util/pair.h"

#define PROCS 3
#define CONNS 4
#define MRS 4
#define MWS 3 /* memory windows of each process */
#define UDS 2 /* UD queue pairs of each process */
#define SGES 3
#define LIST_MAX 10
#define EXPECTS 64
#define LANE_BYTES 16384u
#define RECV_SLOTS 8u
#define SLOT_BYTES (LANE_BYTES / RECV_SLOTS)
#define RECV_BIT (1ull << 31)

/* Shared queues of each process: one for RC, UC and UD, two that XRC requests name. The last one
 * is in a protection domain of its own, which has nothing that a peer may access. */
enum srq { SRQ_PLAIN, SRQ_XRC, SRQ_XRC_FOREIGN, SRQS };
#define SRQ_NONE SRQS /* a number that is nobody's */

enum lane { LANE_LOCAL, LANE_REMOTE, LANE_RECV, LANE_KINDS };
#define UD_LANE (CONNS * 2 * LANE_KINDS)
#define SRQ_LANE (UD_LANE + UDS * 2)
#define ARENA_BYTES ((SRQ_LANE + SRQS) * LANE_BYTES)
#define GRH_BYTES 40u

/* A region of a process's arena; its key is known by slot and generation. */
struct model_mr {
    bool live;
    uint32_t offset, len_bytes, generation;
    int access;
};

/* A window: what it was last bound to. */
struct model_mw {
    bool live, bound;
    bool doubtful; /* a bind that failed or was flushed: it goes before the next round */
    enum ibv_mw_type type;
    int mr, access;
    uint32_t offset, len_bytes, generation;
    int conn, side; /* through whose QP; type 2 is only for its peer */
    /* For this round: whose it is, and whether the owner binds and invalidates it or the peer uses
     * it. */
    int holder, holder_side;
    bool owners_turn;
};

enum model_key { KEY_GOOD, KEY_BAD, KEY_STALE };

struct model_sge {
    int mr;                                 /* or the window */
    bool window;                            /* remote ones only */
    uint32_t generation, offset, len_bytes; /* offset in the arena */
    enum model_key key;
};

struct model_recv {
    uint64_t wr_id;
    int sge_count;
    struct model_sge sges[SGES];
};

struct model_op {
    uint64_t wr_id;
    enum ibv_wr_opcode opcode;
    unsigned int flags;
    int sge_count;
    struct model_sge sges[SGES];
    struct model_sge remote; /* one-sided; the part of the region to bind; the key to invalidate */
    int mw, access;          /* to bind */
    enum srq srq;            /* XRC: named by the request */
    uint32_t imm;
    uint64_t compare_add, swap;
    int to_proc, to_ud; /* a datagram: to this QP, or to ... */
    int to_conn;        /* ... a QP of this connection in to_proc, unless negative */
    uint32_t qkey;
};

/* A completion that must come, in this order on its queue. */
struct model_expect {
    uint64_t wr_id;
    bool any_wr_id; /* of the SRQ's: one of these may be overtaken by those of another SRQ */
    bool seen;
    enum srq srq;
    bool not_success; /* some error; otherwise exactly `status` */
    bool may_be_cut;  /* or flushed, and then all behind it */
    enum ibv_wc_status status;
    enum ibv_wc_opcode opcode;
    bool has_len, has_imm, has_inv, has_grh;
    uint32_t byte_len, imm;
    int src_proc, src_ud;   /* of a datagram */
    int mw;                 /* invalidated */
    struct model_recv recv; /* where the message went, unless any_wr_id */
    bool undefined;         /* the receive's buffer holds anything */
    uint8_t *payload;       /* any_wr_id: what arrived */
};

/* How much is known of the sends of a stream: a WRITE or SEND is complete when it is out, and who
 * sends hears some time later that it was refused. An answer to a READ never comes then. */
enum model_cut { CUT_NOT, CUT_SOME_TIME, CUT_NOW };

struct model_queue {
    int count;
    bool is_cut; /* one that may_be_cut was */
    struct model_expect expects[EXPECTS];
};

struct model_end {
    int proc;
    bool exists;
    enum ibv_qp_state state;
    int access; /* of the QP, once connected */
    bool sig_all, uses_srq;
    uint8_t rnr_retry;
    uint32_t qkey;                                    /* UD */
    uint32_t send_cap, recv_cap, sge_cap, inline_cap; /* granted */
    uint64_t posted, completed,
        freed; /* send requests: all, reported, reported before this round */
    int recv_count;
    struct model_recv recvs[EXPECTS];
    uint32_t next_slot, next_wr;
    struct model_queue sends, receives;
    enum model_cut cut; /* of the list that is posted */
};

struct model_conn {
    enum ibv_qp_type type; /* RC, UC or XRC_SEND: then end 0 is the initiator, end 1 the target */
    struct model_end ends[2];
};

/* Where processes meet. Over packets some things are what they are on a wire
 * (docs/roce.md): each place that asks for it says which. A stream is iWARP: draw_stream.c has the
 * list of what it cannot have. */
enum model_link { LINK_HOST, LINK_PACKETS, LINK_STREAM };

struct model {
    enum model_link link;
    struct model_mr mrs[PROCS][MRS];
    struct model_mw mws[PROCS][MWS];
    struct model_conn conns[CONNS];
    struct model_end uds[PROCS][UDS];
    uint32_t mtu_bytes;
    uint32_t srq_count[PROCS][SRQS]; /* posted and not taken */
    uint8_t *shadows[PROCS];
    uint8_t *payloads; /* of this round */
    uint32_t payload_count;
};

void model_open(struct model *model);
void model_close(struct model *model);
/* A program begins: no objects, memory as in `pattern`. */
void model_clear(struct model *model, const uint8_t *pattern);
/* A round begins: what was expected has come. */
void model_round(struct model *model);

uint32_t model_lane(int conn, int dir, enum lane lane);
uint32_t model_ud_lane(int ud, bool receive);
uint32_t model_srq_lane(enum srq srq);
uint32_t model_op_len(const struct model_op *op);
/* The rights a request needs of the target's QP and region. */
int model_need(enum ibv_wr_opcode opcode);
bool model_reaches(const struct model *model, int proc, const struct model_sge *sge, int need);
/* By a key of a region or window, through the QP at this end of the connection. */
bool model_remote_reaches(const struct model *model, int conn, int side,
                          const struct model_sge *sge, int need);
/* Whether a bind of op->mw, or an invalidation of the key in op->remote, is in order for this end
 * (of the window's owner). */
bool model_may_bind(const struct model *model, int conn, int side, const struct model_op *op);
bool model_may_invalidate(const struct model *model, int conn, int side, const struct model_op *op);
bool model_is_send(enum ibv_wr_opcode opcode);
bool model_is_local(enum ibv_wr_opcode opcode); /* binds and invalidates */
/* Whether windows are bound to a region. */
bool model_has_windows(const struct model *model, int proc, int mr);
/* Over packets UC has none for a SEND with invalidate: 9.3.1, table 38. */
bool model_has_no_packet(const struct model *model, int conn, enum ibv_wr_opcode opcode);
enum srq model_srq_of(const struct model *model, int conn, const struct model_op *op);

/* Each returns the errno the post must give: 0, EINVAL or ENOMEM. */
int model_send(struct model *model, int conn, int dir, const struct model_op *op);
int model_datagram(struct model *model, int proc, int ud, const struct model_op *op);
/* Whether a datagram finds the QP it is for, its Q_Key, and a receive with room. */
bool model_datagram_fits(const struct model *model, int proc, int ud, const struct model_op *op);
int model_receive(struct model_end *end, const struct model_recv *recv);
/* The last request that was posted is to be reported after all. */
void model_signal(struct model_end *end, const struct model_op *op);
/* The end goes to ERR or RESET. */
void model_error(struct model_end *end);
void model_reset(struct model_end *end);

#endif
