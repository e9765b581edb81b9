/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Enhanced connection establishment: what two queue pairs may agree on beside the specification,
 * as a set of options that means something only among devices of one vendor. A connection manager
 * carries the offer of one side to the other (ibv_query_ece), there it is cut down to what that
 * side knows (ibv_set_ece) and carried back, all before either is ready to receive.
 */
#ifndef SW_DEVICE_QUEUE_ECE_H
#define SW_DEVICE_QUEUE_ECE_H

#include <infiniband/verbs.h>
#include <stdint.h>

struct sw_qp;

enum sw_ece_option {
    SW_ECE_SELECTIVE_REPEAT = 1 << 0, /* lost packets may be sent again one by one */
};

/* What a type of queue pair knows. */
uint32_t sw_ece_offer(enum ibv_qp_type type);

/* What was agreed on, else what the QP offers. */
uint32_t sw_ece_query(struct sw_qp *qp);

/* Cuts *options down to what both sides know: nothing, if they are another vendor's. In RESET and
 * INIT; RESET takes it back. 0 or -EINVAL. */
int sw_ece_set(struct sw_qp *qp, uint32_t vendor_id, uint32_t *options);

#endif
