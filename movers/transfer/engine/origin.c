/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/origin.h"

#include <stdlib.h>
#include <string.h>

#include "common/serve/origin.h"
#include "transfer/engine/agent.h"

/* One for each session and each notice that can be there, so there is always a free one. */
bool xfe_origins_make(struct sw_xfer_agent *agent)
{
    agent->origins_count = agent->options.visitors_max + agent->options.notices_max;
    agent->origins = calloc(agent->origins_count, sizeof(*agent->origins));
    return agent->origins;
}

static bool origin_is_in_use(const struct xfe_origin *origin)
{
    return origin->sessions || origin->notices;
}

struct xfe_origin *xfe_origin_of(struct sw_xfer_agent *agent, const struct in6_addr *address)
{
    struct xfe_origin *found = NULL;
    for (uint32_t i = 0; i < agent->origins_count; i++) {
        struct xfe_origin *origin = &agent->origins[i];
        if (!origin_is_in_use(origin))
            found = found ? found : origin;
        else if (IN6_ARE_ADDR_EQUAL(&origin->address, address))
            return origin;
    }
    if (found)
        found->address = *address;
    return found;
}

bool xfe_origin_is_here(struct rdma_cm_id *id)
{
    const struct in6_addr here = mover_address_of(rdma_get_local_addr(id));
    const struct in6_addr there = mover_address_of(rdma_get_peer_addr(id));
    return IN6_ARE_ADDR_EQUAL(&here, &there);
}
