/* SPDX-License-Identifier: BSD-2-Clause */
/* A pipe from the inside: meet.c makes and ends it, pipe.c moves messages. */
#ifndef SW_MOVERS_TRANSFER_PIPE_H
#define SW_MOVERS_TRANSFER_PIPE_H

#include "common/rdma/connection.h"
#include "common/rdma/fork_guard.h"
#include "sidewire/pipe.h"
#include "transfer/pipe/ring.h"

enum {
    PIPE_RING_BYTES = 1 << 16,
    PIPE_SENDS = 256, /* requests with the device */
    PIPE_RECEIVES = 4,
    PIPE_SPIN_US = 50,
    /* The inbox, which the peer reads and writes. */
    PIPE_AT_TOLD = 0,    /* ours: how much was written to the peer, how much was read here */
    PIPE_AT_CREDIT = 64, /* the peer's: how much it has read, which sleep wants a doorbell */
    PIPE_AT_RING = 4096,
    PIPE_INBOX_BYTES = PIPE_AT_RING + PIPE_RING_BYTES,
    /* The outbox, which our requests are made from. */
    PIPE_AT_CREDIT_OUT = 0,
    PIPE_AT_ASKED = 64, /* the peer's told words, as they were read */
    PIPE_AT_MIRROR = 4096,
    PIPE_OUTBOX_BYTES = PIPE_AT_MIRROR + PIPE_RING_BYTES,
};

/* On the way to sleep: the peer is told, then asked whether something is under way. */
enum pipe_stage { PIPE_AWAKE, PIPE_TELLING, PIPE_ASKING, PIPE_SURE };

enum pipe_kind { PIPE_WRITTEN, PIPE_TELL, PIPE_ASK, PIPE_BELL };

struct pipe_signal { /* a request that asked for a completion */
    enum pipe_kind kind;
    uint64_t posted, produced;
};

struct sw_pipe {
    struct mover_connection connection;
    struct ibv_pd *pd;
    struct ibv_mr *inbox_mr, *outbox_mr;
    uint8_t *inbox, *outbox;
    struct mover_fork_guard guard;
    int epoll_fd;
    enum sw_xfer_status status; /* why it is of no use any more; OK while it is */
    uint32_t spin_us;
    uint64_t remote;
    uint32_t remote_key;
    struct pipe_in in;
    struct pipe_out out;
    uint64_t posted, done; /* requests */
    uint64_t signals_posted, signals_done;
    struct pipe_signal signals[PIPE_SENDS];
    enum pipe_stage stage;
    uint64_t wanted; /* the sleep that the peer was told of */
    uint64_t bells;  /* that came */
    uint64_t rung;   /* the sleep of the peer that was ended */
    uint64_t sleeps;
    uint64_t stalled_ns; /* since when a completion is waited for; 0: none is */
};

/* Posts a receive for a doorbell. */
bool pipe_expect_bell(struct sw_pipe *pipe);

#endif
