/* SPDX-License-Identifier: BSD-2-Clause */
/* Where visitors come from: what all of one address have of the places and the notices here. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_ORIGIN_H
#define SW_MOVERS_TRANSFER_ENGINE_ORIGIN_H

#include <stdbool.h>
#include <stdint.h>

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include "sidewire/transfer.h"

/* The last one in so many places is for addresses that have few of them. */
enum { XFE_RESERVE = 8 };

struct xfe_origin { /* the visitors of one address, those that have left included */
    struct in6_addr address;
    uint32_t sessions, notices; /* that are here; 0 and 0: this is free */
};

/* Whether there is room for one more of somebody who has `own` of `all` places. The last eighth is
 * for those who have less than one: one that takes all there is leaves room for others. */
static inline bool xfe_has_share(uint32_t all, uint32_t free, uint32_t own)
{
    const uint32_t reserve = all / XFE_RESERVE;
    return free > reserve || (free && own < reserve);
}

bool xfe_origins_make(struct sw_xfer_agent *agent);
/* That of the address. A new one lasts once a session or a notice is counted there. */
struct xfe_origin *xfe_origin_of(struct sw_xfer_agent *agent, const struct in6_addr *address);
/* The connection is one of this host to itself. */
bool xfe_origin_is_here(struct rdma_cm_id *id);

#endif
