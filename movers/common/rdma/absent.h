/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_ABSENT_H
#define SW_MOVERS_ABSENT_H

#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>

/* Nobody has the address, or its host is off: a neighbour was asked for, and has not answered in
 * time. Other errors of addresses are of this host: no device leads there. */
static inline bool mover_is_absent(const struct rdma_cm_event *event)
{
    return event->event == RDMA_CM_EVENT_ADDR_ERROR && event->status == -ETIMEDOUT;
}

#endif
