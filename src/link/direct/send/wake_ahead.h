/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer that sleeps until a long message is there is woken before it is. A core takes longer to
 * wake, some 40 us on a virtual machine, than the last part of the message takes to move.
 */
#ifndef SW_LINK_DIRECT_SEND_WAKE_AHEAD_H
#define SW_LINK_DIRECT_SEND_WAKE_AHEAD_H

#include <stdint.h>

struct sw_direct_qp;
struct sw_wqe;

/* It is woken when the larger of the two is left, or less. Less than the other is moved before a
 * core is awake, and not worth the call. */
#define SW_WAKE_AHEAD_MIN_BYTES (128u << 10)
#define SW_WAKE_AHEAD_MAX_BYTES (2u << 20)

/* The request is about to move a part of its message. Inside an access section. */
void sw_wake_ahead(const struct sw_direct_qp *d, struct sw_wqe *wqe);

#endif
