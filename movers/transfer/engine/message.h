/* SPDX-License-Identifier: BSD-2-Clause */
/* What visitors say: notices, lanes of theirs that are lost, blocks whose sums they ask for. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_MESSAGE_H
#define SW_MOVERS_TRANSFER_ENGINE_MESSAGE_H

#include <stdbool.h>

#include "sidewire/transfer.h"

struct xfe_visitor;

/* Its queue has woken the agent. */
void xfe_messages_ready(struct xfe_visitor *visitor);
/* A turn for each of those that had more to do than one. */
void xfe_messages_go_on(struct sw_xfer_agent *agent);
/* Takes completions, for one turn. False: what the visitor sent ends its connection. */
bool xfe_messages_take(struct xfe_visitor *visitor);

#endif
