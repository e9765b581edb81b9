/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast groups. RoCE has no subnet manager to ask: the GID of a group follows from its address,
 * and the program attaches its queue pair to it. */
#include <errno.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>

#include "rdmacm/commands/command.h"
#include "rdmacm/commands/user.h"
#include "rdmacm/connections/event.h"
#include "rdmacm/connections/service.h"
#include "wire/bytes.h"

#define UDP_QKEY 0x01234567u
#define ALL_QPS SW_QPN_MASK

static void tell_joined(struct sw_ucm_group *group, const uint8_t gid[16], int status)
{
    struct sw_ucm_id *id = group->id;
    struct sw_ucm_event *event = sw_ucm_event_new(
        id, status ? SW_UCM_MULTICAST_ERROR_EVENT : SW_UCM_MULTICAST_JOIN_EVENT, status);
    if (!event)
        return;
    event->group = group;
    event->response.uid = group->uid;
    event->response.id = group->handle;
    struct rdma_ucm_ud_param *ud = &event->response.param.ud;
    if (!status) {
        ud->qp_num = ALL_QPS;
        ud->qkey = id->qkey;
        sw_ucm_event_address(id, gid, &ud->ah_attr);
    }
    sw_ucm_event_send(event);
}

static int join_group(struct sw_ucm_request *request, uint32_t handle, uint64_t response_to,
                      uint64_t uid, const union sw_address *address)
{
    struct rdma_ucm_create_id_resp response;
    struct sw_ucm_group *group;
    struct sw_ucm_id *id;
    uint8_t gid[16];
    int rc = sw_ucm_id_find_bound(request->channel, handle, &id);
    if (rc)
        return rc;
    if ((id->state != SW_UCM_ADDR_BOUND && id->state != SW_UCM_ADDR_RESOLVED) ||
        sw_address_is_any(address))
        return -EINVAL;
    rc = sw_ucm_group_create(id, &group);
    if (rc)
        return rc;
    group->uid = uid;
    group->address = *address;
    response.id = group->handle;
    if (sw_user_write(response_to, &response, sizeof(response))) {
        sw_ucm_group_destroy(group);
        return -EFAULT;
    }
    sw_address_to_gid(address, gid);
    tell_joined(group, gid, sw_ucm_service_set_qkey(id, UDP_QKEY));
    return 0;
}

int sw_ucm_join_ip_mcast(struct sw_ucm_request *request)
{
    const struct rdma_ucm_join_ip_mcast *in = &request->in.join_ip_mcast;
    union sw_address address;
    memset(&address, 0, sizeof(address));
    memcpy(&address, &in->addr, sizeof(in->addr));
    if (address.family != AF_INET && address.family != AF_INET6)
        return -EINVAL;
    if (request->out_len < sizeof(struct rdma_ucm_create_id_resp))
        return -ENOSPC;
    return join_group(request, in->id, in->response, in->uid, &address);
}

int sw_ucm_join_mcast(struct sw_ucm_request *request)
{
    const struct rdma_ucm_join_mcast *in = &request->in.join_mcast;
    union sw_address address;
    memset(&address, 0, sizeof(address));
    memcpy(&address, &in->addr, sizeof(address));
    if (!sw_address_size(&address))
        return -EINVAL;
    if (request->out_len < sizeof(struct rdma_ucm_create_id_resp))
        return -ENOSPC;
    if (in->addr_size != sw_address_size(&address) || in->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
        return -EINVAL;
    return join_group(request, in->id, in->response, in->uid, &address);
}

int sw_ucm_leave_mcast(struct sw_ucm_request *request)
{
    const struct rdma_ucm_destroy_id *in = &request->in.destroy_id;
    struct rdma_ucm_destroy_id_resp response;
    struct sw_ucm_group *group;
    if (request->out_len < sizeof(response))
        return -ENOSPC;
    int rc = sw_ucm_group_find(request->channel, in->id, &group);
    if (rc)
        return rc;
    response.events_reported = sw_ucm_group_destroy(group);
    return sw_user_write(in->response, &response, sizeof(response));
}
