/* SPDX-License-Identifier: BSD-2-Clause */
/* READ, WRITE and atomics that the initiator executes itself. Inside an access section. */
#ifndef SW_LINK_DIRECT_SEND_ONESIDED_H
#define SW_LINK_DIRECT_SEND_ONESIDED_H

#include <stdint.h>

#include "link/direct/bind/step.h"

struct sw_wqe;

enum sw_step sw_onesided_start(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                               uint32_t position);

#endif
