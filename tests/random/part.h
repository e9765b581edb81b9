/* SPDX-License-Identifier: BSD-2-Clause */
/* One process of the random test: its objects, its part of a program, and what comes of it. */
#ifndef SW_TESTS_INTEGRITY_PART_H
#define SW_TESTS_INTEGRITY_PART_H

#include <pthread.h>
#include <stdio.h>

#include "draw.h"

#define BAD_KEY 0x5a5a5a00u
#define SRQ_BIT (1ull << 62)

struct board_end {
    uint32_t qpn, send_cap, recv_cap, sge_cap, inline_cap;
};

/* What the processes tell each other. */
struct board {
    pthread_barrier_t barrier;
    bool done;
    struct {
        uint64_t base;
        union ibv_gid gid;
        uint32_t rkeys[MRS], stale_rkey;
        uint32_t mw_rkeys[MWS], mw_stale[MWS]; /* 0: none yet */
        uint32_t srq_nums[SRQS];
    } procs[PROCS];
    struct board_end ends[CONNS][2], uds[PROCS][UDS];
    uint16_t ports[CONNS]; /* iWARP: where side 0 listens */
};

struct run {
    uint64_t seed;
    int programs, repeat, seconds;
    bool trace;
};

struct part { /* of one process */
    const struct run *run;
    struct board *board;
    int proc;
    struct vu_dev dev;
    struct ibv_pd *foreign_pd;
    uint8_t *arena;
    struct model model;
    struct draw draw;
    struct draw_round round;
    struct ibv_mr *mrs[MRS], *srq_mrs[SRQS];
    struct ibv_mw *mws[MWS];
    uint32_t stale_lkey;
    struct ibv_cq *cqs[CQS];
    struct ibv_xrcd *xrcd;
    struct ibv_srq *srqs[SRQS];
    bool srq_taken[SRQS][RECV_SLOTS]; /* false: posted */
    struct vu_ep eps[CONNS][2], uds[UDS];
    struct ibv_ah *ahs[PROCS]; /* to a process; the last it sent a datagram from may have made it */
    struct draw_end_attr attrs[CONNS][2];
    int seen[CONNS][2][2], ud_seen[UDS][2]; /* completions of this round: sends and receives */
};

#define TRACE(part, ...)                  \
    do {                                  \
        if ((part)->run->trace)           \
            fprintf(stderr, __VA_ARGS__); \
    } while (0)

void part_meet(struct part *part);
/* NULL: not of this process. */
struct model_end *part_end(struct part *part, int conn, int side);
uint8_t *part_srq_slot(const struct part *part, enum srq srq, uint64_t slot);

/* A program begins and ends; what happens to objects between two rounds. */
void part_begin(struct part *part);
void part_finish(struct part *part);
void part_change(struct part *part);
/* For iWARP: connects by rdma_cm, from INIT on, all ends that connect in this round. */
void part_connect(struct part *part);
/* Posts everything of a round: receives first, on all processes. */
void part_post(struct part *part);
/* All that must come has come, and nothing else. */
void part_settle(struct part *part);

#endif
