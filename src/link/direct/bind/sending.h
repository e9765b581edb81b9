/* SPDX-License-Identifier: BSD-2-Clause */
/* What a queue pair has sent: its place in the rings, and what it waits for. */
#ifndef SW_LINK_DIRECT_BIND_SENDING_H
#define SW_LINK_DIRECT_BIND_SENDING_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/stream_copy.h"
#include "device/queue/traffic.h"
#include "device/rules/target.h"

/* The requester: our requests to the peer, and its answers. Positions run freely. */
struct sw_direct_send {
    uint32_t request_at;    /* next record to write */
    uint32_t served_before; /* serve.at when the last one was written */
    uint32_t request_limit; /* first position that may not be written yet */
    uint32_t bounce_at;     /* of the request area */
    uint32_t recv_used;     /* of the peer's receives, by us */
    uint32_t recv_posted;   /* as last read */
    uint32_t answers_due;   /* requests at the target */
    uint32_t reads_due;     /* of these READs and atomics */
    uint32_t response_at;   /* next answer to read */
    uint32_t response_told; /* what the peer was told of it */
    uint32_t acknowledged;  /* of what the peer says it has done, that is applied */
    uint32_t stall_looks;   /* without reading the clock */
    uint32_t stall_turn;    /* of the engine, at the last one */
    uint64_t stalled_ns;    /* since when the target owes progress; 0: not */
    uint64_t rung_ns, looked_ns;
    uint64_t unbound_ns; /* since when the peer's QP cannot be reached */
    uint64_t fault_ns;   /* since when the peer's memory faults */
    uint64_t rnr_ns;     /* since when no receive is posted */
    uint32_t rnr_tries;
    uint64_t budget_bytes; /* left of what one step may move, of whichever machine */
    bool notify;           /* a record was written that may wake the peer's CQ */
    bool notify_solicited;
    bool notify_all; /* records for different CQs were written */
    bool in_doubt;   /* whether the last request that recv_used counts takes its receive */
    struct sw_sum {
        uint64_t bytes, packets;
    } sums[2]; /* SW_MOVED_*: our copy; the block may serve others when it is asked for */
    struct sw_traffic of_lanes; /* that are gone */
    struct sw_stream_watch stream;
    enum ibv_wc_status fail_status;
    enum sw_verdict fail_verdict; /* SW_ACK: the failure is local, the peer need not know */
};

#endif
