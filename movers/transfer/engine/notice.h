/* SPDX-License-Identifier: BSD-2-Clause */
/* Notices that peers sent, until somebody takes them. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_NOTICE_H
#define SW_MOVERS_TRANSFER_ENGINE_NOTICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "sidewire/transfer.h"

enum { XFE_CREDITS = 32 }; /* notices of one connection without acknowledgement */

struct xfe_origin;
struct xfe_session;

struct xfe_held { /* a notice that was not taken yet */
    struct list_node node;
    struct sw_xfer_notice notice;
    struct xfe_origin *origin;
};

bool xfe_notices_make(struct sw_xfer_agent *agent);
/* Where the next notice of that session can be put; NULL: no room. */
struct sw_xfer_notice *xfe_notices_room(struct sw_xfer_agent *agent,
                                        const struct xfe_session *session);
/* Adds the notice that was put there. */
void xfe_notices_add(struct sw_xfer_agent *agent, struct xfe_session *session);
/* Takes the oldest, or the oldest with these bytes, of that visitor or of any (0). False: none. */
bool xfe_notices_first(struct sw_xfer_agent *agent, struct sw_xfer_notice *notice);
bool xfe_notices_match(struct sw_xfer_agent *agent, uint64_t visitor, const void *data,
                       uint32_t bytes, struct sw_xfer_notice *notice);

#endif
