/* SPDX-License-Identifier: BSD-2-Clause */
/* Leases, from the call that grants one to its deadline or its end. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_GRANT_H
#define SW_MOVERS_TRANSFER_ENGINE_GRANT_H

#include <stdint.h>

#include "sidewire/transfer.h"

/* Revokes those whose deadline has passed. */
void xfe_grants_timers(struct sw_xfer_agent *agent, uint64_t now_ns);

#endif
