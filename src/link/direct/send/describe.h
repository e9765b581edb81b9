/* SPDX-License-Identifier: BSD-2-Clause */
/* What a queue pair of the direct link waits for: link/connections.h. */
#ifndef SW_LINK_DIRECT_SEND_DESCRIBE_H
#define SW_LINK_DIRECT_SEND_DESCRIBE_H

#include "device/queue/qp_impl.h"

struct sw_connection;

/* With the QP locked. */
void sw_direct_describe(const struct sw_qp *qp, struct sw_connection *out);

#endif
