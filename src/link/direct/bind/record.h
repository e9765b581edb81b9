/* SPDX-License-Identifier: BSD-2-Clause */
/* The request ring: records that the target will read. */
#ifndef SW_LINK_DIRECT_BIND_RECORD_H
#define SW_LINK_DIRECT_BIND_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "device/rules/target.h"

struct sw_direct_qp;
struct sw_record;

/* The record to fill, or NULL while the ring has no room for `slots` (FATAL may take the reserved
 * last one). */
struct sw_record *sw_record_reserve(struct sw_direct_qp *d, uint32_t slots, bool fatal);
/* Makes it valid; `wakes`: it ends in a completion of the peer's receive CQ. */
void sw_record_publish(struct sw_direct_qp *d, struct sw_record *record, uint32_t slots,
                       bool wakes);
/* Tells the peer that its QP fails with `verdict`. */
void sw_record_fatal(struct sw_direct_qp *d, enum sw_verdict verdict);

#endif
