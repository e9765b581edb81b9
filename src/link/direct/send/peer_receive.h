/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The receive that the peer has posted for our next message: read in the peer's tables, checked by
 * the target's rules, and filled by us. Inside an access section.
 */
#ifndef SW_LINK_DIRECT_SEND_PEER_RECEIVE_H
#define SW_LINK_DIRECT_SEND_PEER_RECEIVE_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "device/queue/sq.h"
#include "device/rules/device_limits.h"
#include "link/direct/bind/step.h"
#include "link/direct/send/reach.h"

struct sw_peer_receive {
    struct ibv_sge sges[SW_MAX_SGE];
    uint32_t count;
};

/* Where a message goes: runs of it, in order. */
#define SW_PLACING_RUNS (2u * SW_MAX_SGE)
struct sw_placing {
    enum sw_reach reach; /* how far all of it can be reached */
    uint32_t count;      /* of the runs; there may be more than are kept */
    uint32_t unmapped;   /* of these out of reach of a mapping, */
    uint64_t unmapped_bytes;
    bool keeps_away; /* some of them: its owner should not place them for us */
    struct sw_placing_run {
        uint8_t *to; /* NULL: unmapped */
        uint32_t len_bytes;
    } runs[SW_PLACING_RUNS];
};

/* A sound copy: the peer could scribble over its own at any time. */
void sw_peer_receive_read(const struct sw_direct_qp *d, struct sw_peer_receive *out);
/* What the target's rules say of it for a message of this length, and where that goes. */
enum sw_verdict sw_peer_receive_judge(struct sw_direct_qp *d, const struct sw_peer_receive *receive,
                                      uint64_t len_bytes, struct sw_placing *placing);
/* Writes the message into its buffers, from wqe->done_bytes on. DONE with a *verdict other than
 * SW_ACK: a key has gone meanwhile. */
enum sw_step sw_peer_receive_fill(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                                  uint32_t position, const struct sw_peer_receive *receive,
                                  enum sw_verdict *verdict);

#endif
