/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/session.h"

#include <string.h>

#include "transfer/engine/agent.h"
#include "transfer/engine/lease.h"
#include "transfer/engine/origin.h"

bool xfe_session_is(const struct xfe_session *one, const struct xfe_session *other)
{
    return one->session == other->session &&
           !memcmp(one->instance, other->instance, sizeof(one->instance));
}

static uint64_t recall_tag(const struct sw_xfer_agent *agent, const struct xfe_session *session)
{
    uint64_t tag = 0;
    for (uint32_t i = 0; i < XFE_DEPARTED; i++)
        if (xfe_session_is(&agent->departed[i], session) && agent->departed[i].last_tag > tag)
            tag = agent->departed[i].last_tag;
    return tag;
}

struct xfe_session *xfe_session_enter(struct sw_xfer_agent *agent, const struct xfe_session *as,
                                      bool is_own_host)
{
    struct xfe_session *found = NULL;
    uint32_t free = 0;
    for (uint32_t i = 0; i < agent->options.visitors_max; i++) {
        struct xfe_session *session = &agent->sessions[i];
        if (session->lanes && xfe_session_is(session, as))
            return session;
        free += !session->lanes;
        if (!session->lanes && !found)
            found = session;
    }
    const bool has_share =
        is_own_host || xfe_has_share(agent->options.visitors_max, free, as->origin->sessions);
    if (!found || !has_share)
        return NULL;
    *found = *as;
    found->last_tag = recall_tag(agent, as);
    found->number = ++agent->last_visitor;
    return found;
}

void xfe_session_join(struct xfe_session *session)
{
    session->origin->sessions += !session->lanes;
    session->lanes++;
}

void xfe_session_leave(struct sw_xfer_agent *agent, struct xfe_session *session)
{
    if (--session->lanes)
        return;
    session->origin->sessions--;
    xfe_leases_of_visitor_end(agent, session->number);
    if (session->last_tag)
        agent->departed[agent->departed_next++ % XFE_DEPARTED] = *session;
}
