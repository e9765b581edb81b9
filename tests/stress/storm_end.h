/* SPDX-License-Identifier: BSD-2-Clause */
/* An end of a connection of storm.c, and what all processes of the storm share. */
#ifndef SW_TESTS_STRESS_STORM_END_H
#define SW_TESTS_STRESS_STORM_END_H

#include <rdma/rdma_cma.h>
#include <stdatomic.h>

#include "verbs_util/pair.h"

#define PROCESSES_MAX 16
#define MESSAGE_BYTES 2000u
#define ENDS 1024 /* of connections, of each process */

enum phase { SET_UP, WARM, COUNT, STORM, AFTER, COUNT_AGAIN, OVER };

extern struct board {
    uint64_t seed;
    int processes, kills;
    bool is_wire;  /* all goes by packets */
    bool is_iwarp; /* by TCP */
    bool is_tcp;   /* RoCE's queue pairs and messages by TCP */
    uint32_t connections;
    _Atomic int phase;
    _Atomic int done[PROCESSES_MAX];           /* phases, by each process */
    _Atomic uint32_t used, cut;                /* connections */
    _Atomic uint64_t killed_ms[PROCESSES_MAX]; /* just before; 0: alive */
} * board;

/* What a caller tells in its request. */
struct hello {
    uint32_t caller, serial;
};

struct end {
    struct rdma_cm_id *id; /* NULL: free */
    bool is_caller, has_qp;
    bool has_sent, has_received; /* completions came */
    bool is_established;         /* told so */
    bool is_leaving;             /* we disconnect */
    uint64_t ended_ms;           /* disconnected; what was said before may still be on its way */
    struct hello hello;
    int peer;
    uint32_t life; /* of this place */
    uint64_t began_ms;
    uint8_t *sent, *received; /* MESSAGE_BYTES each */
};

extern struct process {
    int index;
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    uint8_t *memory;
    struct end ends[ENDS];
    uint32_t calls, answers, serial, to_call; /* of this phase: to_call */
    uint32_t next_peer;
    struct vu_random random;
} own;

bool storm_is_killed(int process);

/* A free place for the connection of this ID; NULL: there is none. */
struct end *end_take(struct rdma_cm_id *id, bool is_caller);
void end_let_go(struct end *end);
/* It did not go well, as only the end of its peer excuses. */
void end_cut(struct end *end, const char *why, int status);
/* False: the connection has ended meanwhile. */
bool end_create_qp(struct end *end);
void end_established(struct end *end);
/* Takes what has come for all ends; one that is used up takes leave. */
void end_drain_cq(void);

#endif
