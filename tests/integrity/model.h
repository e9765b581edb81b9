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
#define SGES 3
#define LIST_MAX 10
#define EXPECTS 64
#define LANE_BYTES 16384u
#define RECV_SLOTS 8u
#define SLOT_BYTES (LANE_BYTES / RECV_SLOTS)
#define RECV_BIT (1ull << 31)

enum lane { LANE_LOCAL, LANE_REMOTE, LANE_RECV, LANE_KINDS };
#define SRQ_LANE (CONNS * 2 * LANE_KINDS)
#define ARENA_BYTES ((SRQ_LANE + 1) * LANE_BYTES)

/* A region of a process's arena; its key is known by slot and generation. */
struct model_mr {
    bool live;
    uint32_t offset, len_bytes, generation;
    int access;
};

enum model_key { KEY_GOOD, KEY_BAD, KEY_STALE };

struct model_sge {
    int mr;
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
    struct model_sge remote; /* one-sided */
    uint32_t imm;
    uint64_t compare_add, swap;
};

/* A completion that must come, in this order on its queue. */
struct model_expect {
    uint64_t wr_id;
    bool any_wr_id;   /* of the SRQ's */
    bool not_success; /* some error; otherwise exactly `status` */
    enum ibv_wc_status status;
    enum ibv_wc_opcode opcode;
    bool has_len, has_imm;
    uint32_t byte_len, imm;
    struct model_recv recv; /* where the message went, unless any_wr_id */
    bool undefined;         /* the receive's buffer holds anything */
    uint8_t *payload;       /* any_wr_id: what arrived */
};

struct model_queue {
    int count;
    struct model_expect expects[EXPECTS];
};

struct model_end {
    int proc;
    bool exists;
    enum ibv_qp_state state;
    int access; /* of the QP, once connected */
    bool sig_all, uses_srq;
    uint8_t rnr_retry;
    uint32_t send_cap, recv_cap, sge_cap, inline_cap; /* granted */
    uint64_t posted, completed,
        freed; /* send requests: all, reported, reported before this round */
    int recv_count;
    struct model_recv recvs[EXPECTS];
    uint32_t next_slot, next_wr;
    struct model_queue sends, receives;
};

struct model_conn {
    enum ibv_qp_type type; /* RC or UC */
    struct model_end ends[2];
};

struct model {
    struct model_mr mrs[PROCS][MRS];
    struct model_conn conns[CONNS];
    uint32_t srq_count[PROCS], srq_next[PROCS]; /* posted and not taken; all ever posted */
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
uint32_t model_op_len(const struct model_op *op);
/* The rights a request needs of the target's QP and region. */
int model_need(enum ibv_wr_opcode opcode);
bool model_reaches(const struct model *model, int proc, const struct model_sge *sge, int need);

/* Each returns the errno the post must give: 0, EINVAL or ENOMEM. */
int model_send(struct model *model, int conn, int dir, const struct model_op *op);
int model_receive(struct model *model, int conn, int side, const struct model_recv *recv);
/* The end goes to ERR or RESET. */
void model_error(struct model_end *end);
void model_reset(struct model_end *end);

#endif
