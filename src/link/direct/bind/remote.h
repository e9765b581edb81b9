/* SPDX-License-Identifier: BSD-2-Clause */
/* What a queue pair knows of its peer: the QP at the other end, and regions of its memory. */
#ifndef SW_LINK_DIRECT_BIND_REMOTE_H
#define SW_LINK_DIRECT_BIND_REMOTE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/rules/pub.h"
#include "device/rules/target.h"

struct sw_remote_key { /* a region of the peer that was checked and mapped */
    uint32_t rkey;
    uint32_t access; /* of the region and the QP together */
    uint64_t key_word;
    const _Atomic uint64_t *word;
    uint64_t low, high; /* remote addresses [low, high) */
    uint8_t *bytes;     /* where `low` is in this process */
};

/* What the peer's QP publishes: a copy, good while its word does not change. */
struct sw_direct_remote {
    const struct sw_pub_qp *entry;
    uint64_t word;
    uint32_t qpn, access, pd, recv_cq, send_cq;
    bool in_order;               /* its program watches what is written */
    struct sw_pub_domain domain; /* XRC */
    uint32_t srq_num;  /* XRC: the SRQ that PD and CQ above are of, while its word is this */
    uint64_t srq_word; /* 0: none yet */
    uint32_t rq_entries, rq_stride;
    const uint8_t *rq;
};

/* The peer's QP to the rules of the target: as the one that remote requests come to, and as the
 * owner of its receives. */
static inline struct sw_target_qp sw_remote_side(const struct sw_direct_remote *remote)
{
    return (struct sw_target_qp){remote->qpn, remote->pd, remote->access};
}
static inline struct sw_target_qp sw_remote_own(const struct sw_direct_remote *remote)
{
    return (struct sw_target_qp){0, remote->pd, ~0u};
}

#endif
