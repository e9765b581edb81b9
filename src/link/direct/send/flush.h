/* SPDX-License-Identifier: BSD-2-Clause */
/* FLUSH: what was written is made visible, or persistent, at the target. Inside an access
 * section. */
#ifndef SW_LINK_DIRECT_SEND_FLUSH_H
#define SW_LINK_DIRECT_SEND_FLUSH_H

#include "link/direct/bind/step.h"

struct sw_wqe;

enum sw_step sw_flush_start(struct sw_direct_qp *d, struct sw_wqe *wqe);

#endif
