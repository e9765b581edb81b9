/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests that skip the send queue. */
#ifndef SW_LINK_DIRECT_SEND_AHEAD_H
#define SW_LINK_DIRECT_SEND_AHEAD_H

#include <infiniband/verbs.h>
#include <stdint.h>

struct sw_direct_qp;
struct sw_qp;

/* Executes the front of a list that is not queued yet, as far as it may skip the queue
 * (sw_sq_may_skip()) and is done, or sent, at once; returns how many. *sent: of these, the last so
 * many wait for an answer. Opens its own section. */
uint32_t sw_ahead_run(struct sw_qp *qp, struct sw_direct_qp *d, const struct ibv_send_wr *wr,
                      uint32_t most, uint32_t *sent);

#endif
