/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The programs of the random test, drawn from a seed: what each process does in a round. Each draw
 * is told to the model at once, so that a list knows what the one before it left behind, and the
 * model's answers stand beside it.
 */
#ifndef SW_TESTS_INTEGRITY_DRAW_H
#define SW_TESTS_INTEGRITY_DRAW_H

#include "model.h"

#define CQS 2 /* of each process */

enum mr_act { MR_KEEP, MR_REGISTER, MR_DEREGISTER, MR_BUSY /* a window is bound to it */ };
enum mw_act { MW_KEEP, MW_ALLOC, MW_DEALLOC };

struct draw_end_attr {
    int send_cq, recv_cq;
    bool sig_all, uses_srq;
    uint32_t send_wr, recv_wr, sges, inline_bytes;
    struct vu_conn conn;
};

/* What happens to a connection between two rounds, in this order. */
struct draw_conn_acts {
    bool destroy[2], error[2], reset[2], create;
    bool revive[2];     /* SQE to RTS */
    bool init, connect; /* connect: RTR and RTS */
    struct draw_end_attr attrs[2];
};

/* What happens to a UD QP, in this order. */
struct draw_ud_acts {
    bool destroy, error, reset, create;
    bool revive;              /* SQE to RTS */
    bool rekey;               /* another Q_Key, in RTS */
    bool init, ready, active; /* to INIT, RTR, RTS */
    uint32_t qkey;
    struct draw_end_attr attr;
};

struct draw_sends {
    int count;
    struct model_op ops[LIST_MAX];
    bool chain; /* one call for all */
    int rc;     /* of the last */
};

struct draw_recvs {
    int count;
    struct model_recv recvs[LIST_MAX];
    int rc;
};

struct draw_round {
    enum mr_act mr_acts[PROCS][MRS];
    enum mw_act mw_acts[PROCS][MWS];
    struct draw_conn_acts conns[CONNS];
    struct draw_ud_acts uds[PROCS][UDS];
    struct draw_recvs recvs[CONNS][2], ud_recvs[PROCS][UDS];
    uint32_t srq_posts[PROCS][SRQS];
    struct draw_sends sends[CONNS][2], ud_sends[PROCS][UDS];
};

struct draw {
    struct vu_random random;
    struct model *model;
    bool patient; /* may send to a peer that is gone, and wait for the retries */
};

/* A program: which processes its connections join, then its rounds. Between draw_admin and
 * draw_work the model is told what the new queue pairs were granted. */
void draw_open(struct draw *draw, uint64_t seed, struct model *model, const uint8_t *pattern);
void draw_admin(struct draw *draw, struct draw_round *round);
void draw_work(struct draw *draw, struct draw_round *round);

#endif
