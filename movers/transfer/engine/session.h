/* SPDX-License-Identifier: BSD-2-Clause */
/* Sessions of peers that visit, and what is remembered when the last lane of one has gone. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_SESSION_H
#define SW_MOVERS_TRANSFER_ENGINE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "sidewire/transfer.h"

struct xfe_origin;

struct xfe_session { /* one of a peer that visits, over all lanes that it has here */
    uint8_t instance[SW_XFER_INSTANCE_BYTES];
    uint64_t session, last_tag;
    uint64_t number; /* of the visitor */
    uint32_t lanes;  /* 0: this is free */
    struct xfe_origin *origin;
};

/* The same one of the same peer. */
bool xfe_session_is(const struct xfe_session *one, const struct xfe_session *other);
/* Finds the session that has lanes already, or a new one; NULL: there are too many, perhaps of this
 * address. A host has all places of its own agents. */
struct xfe_session *xfe_session_enter(struct sw_xfer_agent *agent, const struct xfe_session *as,
                                      bool is_own_host);
/* A lane more: the visitor's first one counts as one of its address. */
void xfe_session_join(struct xfe_session *session);
/* A lane less. The newest tag of a session outlives its connections: a notice may be sent again. */
void xfe_session_leave(struct sw_xfer_agent *agent, struct xfe_session *session);

#endif
