/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connected queue pair: the machines of transport/, fed from its send queue (request.h) and
 * obeyed when a peer's packets ask for something (respond.h). With the QP locked.
 */
#ifndef SW_LINK_ROCE_QP_QP_H
#define SW_LINK_ROCE_QP_QP_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/backoff.h"
#include "device/queue/counters.h"
#include "device/queue/qp_impl.h"
#include "device/serve/flushing.h"
#include "device/serve/receive.h"
#include "link/roce/port/path.h"
#include "link/roce/qp/announce.h"
#include "link/roce/qp/repath.h"
#include "transport/fallback.h"
#include "transport/requester.h"
#include "transport/responder.h"

struct sw_lifeline;

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
    bool greeted;                  /* by a packet of the peer */
    bool reads_due;                /* READs are to be answered */
    bool is_limited;               /* by the rate limit: there may be more to send */
    uint8_t delayed_acks;          /* packets whose ACK waits */
    struct sw_backoff ack_backoff; /* of ACKs that waited in vain; its turns are messages */
    uint8_t echoes;      /* requests of the peer in a row that were followed by one of ours */
    uint32_t unjoined;   /* packets to come that are joined with none before them */
    uint64_t ack_turn;   /* of sw_batch_gather_turn(): an ACK leaves at its end; 0: none does */
    uint64_t reached_ns; /* when the peer last reached for memory; 0: something was posted since */
    uint32_t served_bytes; /* of a WRITE of the peer's, so far */
    uint32_t served_long;  /* not 0: one was long of late */
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

    uint64_t ended_ns; /* only what closed_qp.c says is left of it. 0: it lives */

    bool is_parked; /* a demand that is not concluded yet: a FLUSH that goes on */
    struct sw_demand parked;
    struct sw_flushing flushing;

    struct {
        uint64_t marked, cnps_received, rnrs_sent, astray;
        uint64_t told[SW_COUNTER_COUNT]; /* of all the machines', what the device's have already */
    } counts;
    struct sw_repath repath;
    bool has_own_flow;           /* from this process to itself, and brought here by the kernel */
    struct sw_fallback fallback; /* RC: roce/qp/fallback.h */
    struct sw_roce_qp *next;     /* among those that are done with */
    struct sw_requester requester;
    struct sw_responder responder;
};

/* What came of a step. */
enum sw_roce_outcome { SW_ROCE_ALIVE, SW_ROCE_DEAD /* the QP has failed: `r` must not be used */ };

/* The connection ends as far as others are told: counters, lives, liveness. With the QP locked. */
void sw_roce_leave_peer(struct sw_roce_qp *r);

extern const struct sw_qp_ops sw_roce_qp_ops;

/* If an answer is late, and comes from this process: sees to it that the kernel brings here what is
 * sent. Before progress(), with rx_lock held. */
void sw_roce_claim_own_flow(struct sw_qp *qp, uint64_t now_ns);

#endif
