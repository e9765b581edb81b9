/* SPDX-License-Identifier: BSD-2-Clause */
/* SENDs that the initiator matches with the peer's posted receive. Inside an access section. */
#ifndef SW_LINK_DIRECT_SEND_TWOSIDED_H
#define SW_LINK_DIRECT_SEND_TWOSIDED_H

#include <stdint.h>

#include "link/direct/bind/connection.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/gather.h"

struct sw_record_head;
struct sw_wqe;

enum sw_step sw_twosided_start(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                               uint32_t position);

/* Whether each receive that waits has room for a message. */
static inline bool sw_send_suits_ring(const struct sw_direct_qp *d, uint32_t len_bytes)
{
    return len_bytes <=
           atomic_load_explicit(&d->remote.entry->rq_len_min_bytes, memory_order_acquire);
}
/* A short message travels in the ring itself, one cache line for up to 48 bytes. At
 * most SW_INLINE_BYTES, and a receive waits that has room for it. BLOCKED: the ring has none. */
enum sw_step sw_send_inline(struct sw_direct_qp *d, const struct sw_gather *gather,
                            const struct sw_record_head *head);
/* Tells the target of a message whose bytes are in place: one that takes a receive; or that it was
 * refused with `verdict`. BLOCKED: the ring has no room. */
enum sw_step sw_send_announce(struct sw_direct_qp *d, const struct sw_wqe *wqe,
                              enum sw_record_kind kind, enum sw_verdict verdict);

#endif
