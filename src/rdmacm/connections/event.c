/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/connections/event.h"

#include <stdlib.h>
#include <string.h>

#include "device/nic/netdev.h"
#include "rdmacm/connections/parting.h"
#include "rdmacm/connections/route.h"
#include "rdmacm/lock.h"

struct sw_ucm_event *sw_ucm_event_new(struct sw_ucm_id *id, enum sw_ucm_event_type type, int status)
{
    sw_rdmacm_assert_locked();
    struct sw_ucm_event *event = calloc(1, sizeof(*event));
    if (!event)
        return NULL;
    event->id = id;
    event->response.uid = id->uid;
    event->response.id = id->handle;
    event->response.event = type;
    event->response.status = (uint32_t)status;
    return event;
}

void sw_ucm_event_send(struct sw_ucm_event *event)
{
    sw_rdmacm_assert_locked();
    if (!event)
        return;
    if (event->id->uid && !sw_ucm_is_parting())
        sw_ucm_channel_push(event->id->channel, event);
    else
        free(event);
}

void sw_ucm_event_tell(struct sw_ucm_id *id, enum sw_ucm_event_type type, int status)
{
    sw_ucm_event_send(sw_ucm_event_new(id, type, status));
}

/* The index of the local GID (RoCE v2) in the table of the ID's device. */
static uint8_t gid_index_of(const struct sw_ucm_id *id)
{
    struct sw_gid entry;
    uint8_t own[16];
    sw_ucm_route_packet_gid(id->route.sgid, own);
    for (int i = 0; sw_netdev_gid(id->dev, i, &entry); i++)
        if (entry.valid && entry.type == SW_GID_ROCE_V2 && !memcmp(entry.gid.raw, own, sizeof(own)))
            return (uint8_t)i;
    return 0;
}

void sw_ucm_event_address(const struct sw_ucm_id *id, const uint8_t dgid[16],
                          struct ib_uverbs_ah_attr *out)
{
    memset(out, 0, sizeof(*out));
    sw_ucm_route_packet_gid(dgid, out->grh.dgid);
    out->grh.flow_label = id->route.flow_label;
    out->grh.sgid_index = gid_index_of(id);
    out->grh.hop_limit = id->route.hop_limit;
    out->grh.traffic_class = id->route.traffic_class;
    out->sl = id->route.sl;
    out->is_global = 1;
    out->port_num = 1;
}
