/* SPDX-License-Identifier: BSD-2-Clause */
/* Long SENDs that the target fetches: one copy instead of two. */
#ifndef SW_LINK_DIRECT_SEND_PULL_H
#define SW_LINK_DIRECT_SEND_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "device/queue/qp_impl.h"
#include "link/direct/bind/step.h"

/* Whether it does so with the message at that position: the target must execute it, and it is
 * long. */
bool sw_pull_suits(struct sw_qp *qp, const struct sw_direct_qp *d, uint32_t position);
/* The target's part: moves what is left of the list's bytes into the claimed receive, at most the
 * budget. Inside an access section. */
enum sw_step sw_pull(struct sw_direct_qp *d, const struct ibv_sge *list, uint32_t count);

#endif
