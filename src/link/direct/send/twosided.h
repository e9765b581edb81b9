/* SPDX-License-Identifier: BSD-2-Clause */
/* SENDs that the initiator matches with the peer's posted receive. Inside an access section. */
#ifndef SW_LINK_DIRECT_SEND_TWOSIDED_H
#define SW_LINK_DIRECT_SEND_TWOSIDED_H

#include <stdint.h>

#include "link/direct/bind/step.h"
#include "link/gather.h"

struct sw_wqe;

enum sw_step sw_twosided_start(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                               uint32_t position);

/* A short message travels in the ring itself, one cache line for up to 48 bytes. At
 * most SW_INLINE_BYTES, and a receive waits that has room for it. BLOCKED: the ring has none. */
enum sw_step sw_send_inline(struct sw_direct_qp *d, const struct sw_gather *gather,
                            uint32_t len_bytes, uint8_t flags, uint32_t imm);

#endif
