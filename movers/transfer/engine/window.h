/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Windows of leases on the queue pairs of visitors: what is posted there to begin and to end them.
 */
#ifndef SW_MOVERS_TRANSFER_ENGINE_WINDOW_H
#define SW_MOVERS_TRANSFER_ENGINE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

struct sw_xfer_lease;
struct xfe_visitor;

/* Lets that visitor in. -EOPNOTSUPP: no windows can be had, and registrations take their place.
 * -EPIPE: no lane is left. */
int xfe_windows_grant(struct sw_xfer_lease *lease, uint64_t number);
/* Nothing by them is taken any more. */
void xfe_windows_end(struct sw_xfer_lease *lease);
/* A lane has a new queue pair, which can send: binds the windows that its visitor has there. */
bool xfe_windows_bind(struct xfe_visitor *visitor);

#endif
