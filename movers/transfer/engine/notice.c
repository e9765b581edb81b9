/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/notice.h"

#include <stdlib.h>
#include <string.h>

#include "transfer/engine/agent.h"
#include "transfer/engine/origin.h"
#include "transfer/engine/session.h"

bool xfe_notices_make(struct sw_xfer_agent *agent)
{
    agent->held_all = calloc(agent->options.notices_max, sizeof(*agent->held_all));
    for (uint32_t i = 0; agent->held_all && i < agent->options.notices_max; i++)
        list_append(&agent->held_free, &agent->held_all[i].node);
    agent->held_free_count = agent->held_all ? agent->options.notices_max : 0;
    return agent->held_all;
}

static struct xfe_held *held_of(struct list_node *node)
{
    return LIST_MEMBER(node, struct xfe_held, node);
}

struct sw_xfer_notice *xfe_notices_room(struct sw_xfer_agent *agent,
                                        const struct xfe_session *session)
{
    struct list_node *node = list_first(&agent->held_free);
    return node && xfe_has_share(agent->options.notices_max, agent->held_free_count,
                                 session->origin->notices)
               ? &held_of(node)->notice
               : NULL;
}

void xfe_notices_add(struct sw_xfer_agent *agent, struct xfe_session *session)
{
    struct list_node *node = list_first(&agent->held_free);
    held_of(node)->origin = session->origin;
    session->origin->notices++;
    agent->held_free_count--;
    list_remove(node);
    list_append(&agent->held, node);
}

static void take_held(struct sw_xfer_agent *agent, struct xfe_held *held,
                      struct sw_xfer_notice *notice)
{
    *notice = held->notice;
    held->origin->notices--;
    agent->held_free_count++;
    list_remove(&held->node);
    list_append(&agent->held_free, &held->node);
}

bool xfe_notices_first(struct sw_xfer_agent *agent, struct sw_xfer_notice *notice)
{
    struct list_node *node = list_first(&agent->held);
    if (node)
        take_held(agent, held_of(node), notice);
    return node;
}

bool xfe_notices_match(struct sw_xfer_agent *agent, uint64_t visitor, const void *data,
                       uint32_t bytes, struct sw_xfer_notice *notice)
{
    for (struct list_node *at = list_first(&agent->held); at; at = list_after(&agent->held, at)) {
        struct xfe_held *held = held_of(at);
        if (held->notice.bytes != bytes || (visitor && held->notice.visitor != visitor) ||
            (bytes && memcmp(held->notice.data, data, bytes) != 0))
            continue;
        take_held(agent, held, notice);
        return true;
    }
    return false;
}
