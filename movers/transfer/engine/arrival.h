/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests of peers for a connection to this agent, and ends of those that it has. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_ARRIVAL_H
#define SW_MOVERS_TRANSFER_ENGINE_ARRIVAL_H

#include "sidewire/transfer.h"

/* Takes what has come to its listeners. */
void xfe_arrivals_take(struct sw_xfer_agent *agent);

#endif
